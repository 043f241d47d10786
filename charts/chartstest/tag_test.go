package chartstest

import (
	"strings"
	"testing"
)

// TestTagOfDigits: a tag of digits, which is a number in values, is the tag as it is written.
func TestTagOfDigits(t *testing.T) {
	for values, want := range map[string]string{
		"image: {tag: 2633104}": ":2633104", "image: {tag: '2633104'}": ":2633104", "image: {tag: 20261124000000}": ":20261124000000",
		"image: {tag: v0.1.0}": ":v0.1.0", "image: {tag: ''}": ":" + appVersion(t),
	} {
		if _, agent := render(t, values).agent(t); !strings.HasSuffix(agent.Image, want) {
			t.Errorf("%s: image %s, want %s", values, agent.Image, want)
		}
	}
}
