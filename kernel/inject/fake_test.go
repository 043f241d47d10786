package inject_test

import (
	"bytes"
	"testing"

	"github.com/namegate/namegate/kernel/inject"
	"github.com/namegate/namegate/testkit/fatal"
)

func TestFake(t *testing.T) {
	t.Parallel()
	f := inject.NewFake()
	packet := []byte{1, 2, 3}
	if err := f.Send("veth5", packet); err == nil {
		t.Error("a packet went into an interface that is not there")
	}
	got := make(chan []byte, 1)
	f.SetInterface("veth5", func(p []byte) { got <- p })
	fatal.If(t, f.Send("veth5", packet))
	if p := <-got; !bytes.Equal(p, []byte{1, 2, 3}) {
		t.Errorf("received %v", p)
	}
	packet[0] = 9
	if sent := f.Sent(); len(sent) != 1 || sent[0].Iface != "veth5" || sent[0].Packet[0] != 1 {
		t.Errorf("sent %v", sent)
	}
	f.SetUnsupported(true)
	if err := f.Send("veth5", packet); !inject.IsUnsupported(err) {
		t.Errorf("on a kernel that cannot: %v", err)
	}
	f.SetUnsupported(false)
	f.SetInterface("veth5", nil)
	if err := f.Send("veth5", packet); err == nil || inject.IsUnsupported(err) {
		t.Errorf("after the interface is gone: %v", err)
	}
	f.SetInterface("veth5", func([]byte) {})
	fatal.If(t, f.Close())
	if err := f.Send("veth5", packet); err == nil {
		t.Error("a closed one sends")
	}
}
