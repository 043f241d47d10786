// Package browser drives the page of `namegate ui` in headless Chromium. It is a module of its own:
// the driver of the browser is no dependency of Namegate.
//
// TestScreenshots and TestDemo write pictures to bin/screenshots. `make pictures` writes those of
// TestDemo, which are of the demo's real packets, to docs/images.
package browser
