// Package browser drives the page of `namegate ui` in headless Chromium. It is a module of its own:
// the driver of the browser is no dependency of Namegate.
//
// TestScreenshots writes bin/screenshots. Its pictures traffic, why and policies are those of
// docs/images (ui-traffic, ui-log, ui-policies), made smaller by pngquant.
package browser
