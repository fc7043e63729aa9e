"""Every sentence with which a pod or gang is refused or held back: cases that reach it, and the page of all."""
