// Package webtest has agents for tests of the page: each answers as console.Handler does, of a node
// that the test describes, and can be slow or away.
package webtest
