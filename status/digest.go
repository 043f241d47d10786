package status

import (
	"encoding/json"
	"fmt"
)

// The bounds of a node's Lease. An object's annotations may have 256 KiB in all; half of
// it leaves room for other writers. The other bounds keep one policy or one noisy pod
// from taking the place of all others.
const (
	maxDigestBytes  = 128 << 10
	maxEntries      = 256
	maxMessageBytes = 512
	// maxPodsNamed is how many pods an entry names; the others are counted.
	maxPodsNamed = 4
)

// entry is all findings of a node with one policy and one reason.
type entry struct {
	Policy  string   `json:"policy"`
	Reason  string   `json:"reason"`
	Message string   `json:"message"` // of the first pod
	Pods    []string `json:"pods,omitempty"`
	Count   int      `json:"count"` // of pods
	Node    string   `json:"-"`     // whose entry it is, where all nodes' are gathered
}

// digest is the content of a node's Lease.
type digest struct {
	Findings []entry `json:"findings"`
	// More counts the entries without room.
	More int `json:"more,omitempty"`
	// Version, Enforce and InSync are those of the agent, for `kubectl namegate status`.
	Version string `json:"version,omitempty"`
	Enforce string `json:"enforce,omitempty"`
	InSync  bool   `json:"inSync"`
}

// digestOf gathers sorted findings.
func digestOf(findings []Finding) digest {
	d := digest{Findings: []entry{}}
	var last *entry
	for _, f := range findings {
		if f.Policy == "" || f.Reason == "" {
			continue
		}
		if last == nil || last.Policy != f.Policy || last.Reason != f.Reason {
			d.Findings = append(d.Findings, entry{Policy: f.Policy, Reason: f.Reason, Message: clip(f.Message, maxMessageBytes)})
			last = &d.Findings[len(d.Findings)-1]
		}
		last.add(f.Pod.String())
	}
	if n := len(d.Findings); n > maxEntries {
		d.Findings, d.More = d.Findings[:maxEntries], n-maxEntries
	}
	return d
}

// add counts a pod; pods of the same name, as of two findings, count once.
func (e *entry) add(pod string) {
	if pod == "/" || len(e.Pods) > 0 && e.Pods[len(e.Pods)-1] == pod {
		return
	}
	e.Count++
	if len(e.Pods) < maxPodsNamed {
		e.Pods = append(e.Pods, pod)
	}
}

// encode returns the digest as JSON of at most maxDigestBytes: the last entries go first.
func (d digest) encode() (string, error) {
	for {
		text, err := json.Marshal(d)
		if err != nil {
			return "", fmt.Errorf("encoding this node's findings: %w", err)
		}
		if len(text) <= maxDigestBytes {
			return string(text), nil
		}
		keep := len(d.Findings) * maxDigestBytes / (len(text) + 1)
		d.More += len(d.Findings) - keep
		d.Findings = d.Findings[:keep]
	}
}

// decodeDigest reads what another node wrote. It trusts no bound.
func decodeDigest(text string) (digest, error) {
	if text == "" {
		return digest{}, nil
	}
	if len(text) > maxDigestBytes {
		return digest{}, fmt.Errorf("%d bytes of findings; at most %d are read", len(text), maxDigestBytes)
	}
	var d digest
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return digest{}, fmt.Errorf("findings cannot be read: %w", err)
	}
	if len(d.Findings) > maxEntries {
		d.Findings = d.Findings[:maxEntries]
	}
	for i := range d.Findings {
		e := &d.Findings[i]
		e.Message = clip(e.Message, maxMessageBytes)
		e.Pods = e.Pods[:min(len(e.Pods), maxPodsNamed)]
		e.Count = max(e.Count, len(e.Pods))
	}
	return d, nil
}
