package dataplane

// State is all that a dataplane is to hold.
type State struct {
	Subjects Subjects
	Grants   Grants
}
