package agent

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/namegate/namegate/agent/health"
	"github.com/namegate/namegate/proxy/corefile"
)

// TestChooseDataplane: what the Corefile names, or else does not work with a remedy.
func TestChooseDataplane(t *testing.T) {
	lacks := errors.New("ipset type hash:ip is not available")
	for _, c := range []struct {
		want         corefile.Dataplane
		lacks        error
		name, reason string
		err          string // a part of the error, "" for none
	}{
		{corefile.Auto, nil, "iptables", "iptables and ipset work on this node", ""},
		{corefile.IPTables, nil, "iptables", "the Corefile names it", ""},
		{corefile.Auto, lacks, "nftables", "iptables does not work on this node: ipset type hash:ip is not available", ""},
		{corefile.IPTables, lacks, "", "", "dataplane iptables does not work on this node: ipset type hash:ip is not available; install the package iptables"},
		{corefile.NFTables, nil, "nftables", "the Corefile names it", ""},
		{corefile.NFTables, lacks, "nftables", "the Corefile names it", ""},
	} {
		d, reason, err := choose(c.want, c.lacks)
		if c.err != "" {
			var u *unusable
			if !errors.As(err, &u) || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s, %v: %v, want %q", c.want, c.lacks, err, c.err)
			}
			continue
		}
		if err != nil || string(d) != c.name || reason != c.reason {
			t.Errorf("%s, %v: %s because %s, %v", c.want, c.lacks, d, reason, err)
		}
	}
}

// TestAwaitDataplane: an agent whose dataplane does not work is not ready and says why, tries
// again, and starts when it works. Other errors end it.
func TestAwaitDataplane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, log := health.New(time.Now), slog.New(slog.DiscardHandler)
		works := time.Now().Add(time.Minute)
		var k *kernel
		end := make(chan error)
		go func() {
			var err error
			k, err = awaitDataplane(t.Context(), func() (*kernel, error) {
				if time.Now().Before(works) {
					return nil, &unusable{errors.New("no ipset")}
				}
				return &kernel{}, nil
			}, h, log)
			end <- err
		}()
		time.Sleep(50 * time.Second)
		if err := h.Ready(); err == nil || !strings.Contains(err.Error(), "no ipset; install") || h.Live() != nil {
			t.Errorf("ready: %v, live: %v", err, h.Live())
		}
		if err := <-end; err != nil || k == nil || strings.Contains(h.Ready().Error(), "dataplane") {
			t.Errorf("%v, %v, ready: %v", k, err, h.Ready())
		}
		if after := time.Since(works); after >= dataplanePause {
			t.Errorf("it starts %v late", after)
		}
		broken := errors.New("no netlink")
		if _, err := awaitDataplane(t.Context(), func() (*kernel, error) { return nil, broken }, h, log); !errors.Is(err, broken) {
			t.Errorf("another error: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := awaitDataplane(ctx, func() (*kernel, error) { return nil, &unusable{broken} }, h, log); !errors.Is(err, broken) {
			t.Errorf("the agent is stopped: %v", err)
		}
	})
}
