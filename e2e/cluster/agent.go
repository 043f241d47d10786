package cluster

import "path/filepath"

// Tag gives an image that the node has another name.
func (n *Node) Tag(image, name string) error {
	_, err := n.ctr("images", "tag", "--force", image, name)
	return err
}

// AgentStatus returns what `namegate status` prints on the node, without the API
// server: the machine's own build of the program asks the agent at its socket.
// Args are further ones of that command.
func (n *Node) AgentStatus(args ...string) (string, error) {
	return n.Run(filepath.Join(filepath.Dir(n.cluster.bin), "namegate"), append([]string{"status"}, args...)...)
}
