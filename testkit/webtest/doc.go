// Package webtest has what tests of the page need: requests to it as its scripts send them, and agents.
// Each agent answers as serve.Handler does, of a node that the test describes, and can be slow or
// away.
package webtest
