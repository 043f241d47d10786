package console

import "testing"

// TestPodName: how pods may be written.
func TestPodName(t *testing.T) {
	for _, c := range []struct{ namespace, pod, want string }{
		{"", "cart", "/cart"}, {"shop", "cart", "shop/cart"}, {"", "shop/cart", "shop/cart"}, {"shop", "shop/cart", "shop/cart"},
		{"pay", "shop/cart", "error"}, {"", "/cart", "error"}, {"", "shop/", "error"}, {"", "a/b/c", "error"}, {"", "", "error"},
	} {
		got := "error"
		if ns, name, err := PodName(c.namespace, c.pod); err == nil {
			got = ns + "/" + name
		}
		if got != c.want {
			t.Errorf("%q in %q is %s, want %s", c.pod, c.namespace, got, c.want)
		}
	}
}
