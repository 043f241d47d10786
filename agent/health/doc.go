// Package health answers the probes of an agent: whether it should be restarted, and
// whether it does its work.
//
// The agent notes each step of its life in a Health; the kubelet asks at the agent's own
// socket or at the metrics port. It knows neither the kernel nor the API server.
package health
