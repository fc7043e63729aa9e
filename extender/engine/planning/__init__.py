"""Whether a gang fits as a whole, and where: on trial copies of the books."""
