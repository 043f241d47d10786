package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
)

// Tag gives an image that the node has another name.
func (n *Node) Tag(image, name string) error {
	_, err := n.ctr("images", "tag", "--force", image, name)
	return err
}

// AgentStatus returns what `namegate status` prints on the node, without the API
// server: the machine's own build of the program asks the agent at its socket.
// Args are further ones of that command.
func (n *Node) AgentStatus(args ...string) (string, error) {
	return n.namegate("status", args...)
}

// Cleanup runs `namegate cleanup` on the node, as an administrator does at its console.
func (n *Node) Cleanup() error {
	_, err := n.namegate("cleanup")
	return err
}

func (n *Node) namegate(verb string, args ...string) (string, error) {
	return n.Run(filepath.Join(filepath.Dir(n.cluster.bin), "namegate"), append([]string{verb}, args...)...)
}

// KillContainers kills the running containers of a name on the node, without the kubelet, and
// returns when they have ended.
func (n *Node) KillContainers(ctx context.Context, name string) error {
	return until(ctx, "the end of the containers "+name+" of "+n.Name, stopTime, func(context.Context) error {
		running, err := n.running(fmt.Sprintf(`labels."io.kubernetes.container.name"==%s`, name))
		for id := range running {
			_, killed := n.ctr("tasks", "kill", "--signal", "KILL", id)
			err = errors.Join(err, killed, fmt.Errorf("%s runs", id))
		}
		return err
	})
}
