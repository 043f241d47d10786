package web

import (
	"embed"
	"io/fs"
	"net/http"
	"path"
)

// page is the page: HTML, CSS, JavaScript, and libraries with their licences.
//
//go:embed page
var page embed.FS

// types are those of the page's files: what a system says of them may be another.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".mjs": "text/javascript; charset=utf-8",
	".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8",
}

// files serves the page.
func files() http.Handler {
	below, err := fs.Sub(page, "page")
	if err != nil {
		panic(err) // the name is no path
	}
	serve := http.FileServerFS(below)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if t := types[path.Ext(r.URL.Path)]; t != "" {
			w.Header().Set("Content-Type", t)
		}
		serve.ServeHTTP(w, r)
	})
}
