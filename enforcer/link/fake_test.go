package link_test

import (
	"context"
	"slices"
	"testing"

	"github.com/namegate/namegate/enforcer/link"
)

func TestFake(t *testing.T) {
	own := addr("198.51.100.1")
	f := link.NewFake(own)
	events, err := f.Watch(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	a := addr("10.1.0.5")
	if _, err := f.Home(a); !link.IsUnknown(err) {
		t.Errorf("before it has a home: %v", err)
	}
	f.SetHome(a, link.Home{Iface: "br0", Port: "port5"})
	f.SetHome(a, link.Home{Iface: "br0", Port: "port6"})
	select {
	case <-events:
	default:
		t.Error("watchers are not told")
	}
	if h, err := f.Home(a); err != nil || h.Port != "port6" {
		t.Errorf("home %+v, %v", h, err)
	}
	for name, want := range map[string]bool{"br0": true, "port6": true, "port5": false} {
		if got, err := f.Exists(name); got != want || err != nil {
			t.Errorf("Exists(%s) = %v, %v", name, got, err)
		}
	}
	f.SetHome(a, link.Home{})
	if there, _ := f.Exists("br0"); there {
		t.Error("an interface that nobody lives on stands")
	}
	for range 2 {
		if err := f.AddAddr(addr("169.254.20.64")); err != nil {
			t.Error(err)
		}
	}
	if all, _ := f.Addrs(); !slices.Equal(all, addrs("169.254.20.64", "198.51.100.1")) {
		t.Errorf("addresses %v", all)
	}
	for range 2 {
		if err := f.DelAddr(addr("169.254.20.64")); err != nil {
			t.Error(err)
		}
	}
	if all, _ := f.Addrs(); !slices.Equal(all, addrs("198.51.100.1")) {
		t.Errorf("addresses %v", all)
	}
}
