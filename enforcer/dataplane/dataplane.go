package dataplane

// State is all that a dataplane is to hold. The subjects do not change.
type State struct {
	Subjects Subjects
	Grants   Grants
}
