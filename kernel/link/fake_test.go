package link_test

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/namegate/namegate/kernel/link"
	"github.com/namegate/namegate/testkit/fatal"
)

func TestFake(t *testing.T) {
	t.Parallel()
	own := addr("198.51.100.1")
	f := link.NewFake(own)
	events, err := f.Watch(context.Background(), nil)
	fatal.If(t, err)
	a := addr("10.1.0.5")
	if h, known := homes(t, f, a.String()); known {
		t.Errorf("before it has a home: %+v", h)
	}
	f.SetHome(a, link.Home{Iface: "br0", Port: "port5"})
	f.SetHome(a, link.Home{Iface: "br0", Port: "port6"})
	select {
	case <-events:
	default:
		t.Error("watchers are not told")
	}
	if h, known := homes(t, f, a.String()); !known || !slices.Equal(h, at("port6", link.Seen)) {
		t.Errorf("home %+v, %v", h, known)
	}
	if got, err := f.Indexes(); err != nil || !maps.Equal(got, map[string]int{"br0": 1, "port6": 1}) {
		t.Errorf("interfaces %v, %v", got, err)
	}
	f.Remake("port6")
	if got, _ := f.Indexes(); got["port6"] != 2 {
		t.Errorf("interfaces %v", got)
	}
	f.SetFound(a)
	if h, known := homes(t, f, a.String()); !known || len(h) > 0 {
		t.Errorf("home %+v, %v", h, known)
	}
	f.SetHome(a, link.Home{})
	if got, _ := f.Indexes(); len(got) > 0 {
		t.Errorf("interfaces that nobody lives on stand: %v", got)
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
