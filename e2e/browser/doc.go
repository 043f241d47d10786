// Package browser drives the page of `namegate ui` in headless Chromium. It is a module of its own:
// the driver of the browser is no dependency of Namegate.
package browser
