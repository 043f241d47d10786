package marks

import "testing"

func TestUse(t *testing.T) {
	const head = "table inet other {\n\tchain c {\n\t\ttype filter hook forward priority 0; policy accept;\n"
	tests := []struct {
		rule string
		uses bool
	}{
		{"meta mark set 0x00000040", true},
		{"meta mark set 0x00000539", false},
		{"ct mark set 0x00000001", true}, // written whole, our bit with it
		{"meta mark set mark or 0x00004000", false},
		{"meta mark set mark or 0x000040c0", true},
		{"meta mark set mark and 0xffffbfff", false},
		{"meta mark set mark and 0xffffffbf", true},
		{"meta mark set mark and 0xffffff00 xor 0x00000001", true},
		{"ct mark set mark", true},
		{"meta mark set ct mark", true},
		{"ct mark set ct mark and 0xffffff7f xor 0x00000080", false},
		{"mark and 0x00004000 == 0x00004000 masquerade", false},
		{"meta mark and 0x00000040 == 0x00000040 accept", true},
		{"meta mark & 0x00000040 == 0x00000000 drop", true},
		{"ct mark 0x00000080 return", false},
		{"ct mark != 0x000000c0 return", true},
		{"meta mark 0x00000000 accept", true},
		{"tcp dport 443 accept", false},
		{`comment "mark of another kind"`, false},
	}
	for _, test := range tests {
		ruleset := head + "\t\t" + test.rule + "\n\t}\n}\n"
		if got := Use(ruleset, 0x40); (got != "") != test.uses {
			t.Errorf("%s: found %q", test.rule, got)
		}
	}
	two := "table ip first {\n\tchain judge {\n\t\tmeta mark & 0x80 == 0x80 return\n\t}\n}\n" + head + "\t\tmeta mark set 0x40\n\t}\n}\n"
	if got := Use(two, 0x40); got != "inet other c: meta mark set 0x40" {
		t.Errorf("in the second table: %q", got)
	}
}
