package check

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	yaml "sigs.k8s.io/yaml/goyaml.v3"
)

// place is the position of an object: in a file, or with file "" in the cluster.
type place struct {
	file string
	line int        // of its document
	root *yaml.Node // of its document; nil where only the line is known
	path string     // in its document, "items[2]"
	// changed is when an object of the cluster was written last, its status aside.
	changed time.Time
}

// where returns " at file:line" for a field of a file's object, "" for an object of the cluster.
func (p place) where(path string) string {
	if p.file == "" {
		return ""
	}
	return " at " + p.ref(path)
}

// ref returns "file:line" for a field.
func (p place) ref(path string) string { return p.file + ":" + strconv.Itoa(p.at(path)) }

// newPlace returns the place of a document that begins at a line.
func newPlace(file string, line int, text []byte) place {
	p := place{file: file, line: line}
	var root yaml.Node
	if yaml.Unmarshal(text, &root) == nil && len(root.Content) == 1 {
		p.root = root.Content[0]
	}
	return p
}

// at returns the line of a field, of its parent if it is not written, and so on.
func (p place) at(path string) int {
	if p.root == nil {
		return p.line
	}
	node := p.root
	line := node.Line
	for _, step := range steps(strings.Trim(p.path+"."+path, ".")) {
		key, next := child(node, step)
		if next == nil {
			break
		}
		node, line = next, key.Line
	}
	return p.line + line - 1
}

// aStep is a field, or an item of a list.
var aStep = regexp.MustCompile(`[^.\[\]]+|\[\d+\]`)

// steps cuts a path such as "spec.egress[0].matches[1].name".
func steps(path string) []string { return aStep.FindAllString(path, -1) }

// child returns the value of one step, and the node at which it is written.
func child(node *yaml.Node, step string) (key, value *yaml.Node) {
	for node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if number, isItem := strings.CutPrefix(step, "["); isItem {
		i, err := strconv.Atoi(strings.TrimSuffix(number, "]"))
		if err != nil || node.Kind != yaml.SequenceNode || i >= len(node.Content) {
			return nil, nil
		}
		return node.Content[i], node.Content[i]
	}
	if node.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == step {
			return node.Content[i], node.Content[i+1]
		}
	}
	return nil, nil
}
