// Package smoke shows, before any agent is installed, that the cluster of the
// scenarios does what clusters do: what fails here is not the agent's doing.
package smoke
