"""How a release is made: `make release` fills dist/ (docs/releasing.md). No part of any package or image."""
