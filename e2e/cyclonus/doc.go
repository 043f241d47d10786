// Package cyclonus holds the compiled views and the kernel against an implementation
// of NetworkPolicy that is not ours: github.com/mattfenwick/cyclonus says what a policy
// allows, and its test cases are run packet by packet over the namespace lab. It is a
// module of its own, so that nothing of that reaches the agent.
package cyclonus
