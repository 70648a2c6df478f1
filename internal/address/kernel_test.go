package address

import (
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
)

// TestRenewalCannotCreate holds the kernel to what renewFlags are built on.
func TestRenewalCannotCreate(t *testing.T) {
	if !isolated(t) {
		return
	}
	veth(t, "a0", "b0")
	for _, iface := range []string{"a0", model.LoopbackInterface} {
		t.Run(iface, func(t *testing.T) { renewalCannotCreate(t, iface) })
	}
}

func renewalCannotCreate(t *testing.T, iface string) {
	k, err := openKernel()
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	index, err := k.LinkIndex(iface)
	if err != nil {
		t.Fatal(err)
	}
	const valid = 2 * time.Second
	for _, addr := range both {
		do := func(v Verb) error {
			o := &Op{Verb: v, Addr: addr, Index: index, Lifetime: valid}
			k.Change([]*Op{o})
			return o.Err
		}
		for i, step := range []struct {
			verb  Verb
			err   error
			there int
		}{
			{Renew, unix.EINVAL, 0},
			{Create, nil, 1},
			{Create, unix.EEXIST, 1},
			{Renew, nil, 1},
			{Renew, nil, 1},
			{Remove, nil, 0},
			{Remove, unix.EADDRNOTAVAIL, 0},
			{Renew, unix.EINVAL, 0},
		} {
			if err := do(step.verb); err != step.err {
				t.Errorf("%s: step %d: error %v, want %v", addr, i, err, step.err)
			}
			if got := find(t, addr); len(got) != step.there {
				t.Errorf("%s: step %d: %+v", addr, i, got)
			}
		}
	}
	// Where the kernel does not report IFA_PROTO, as before the first dump, both
	// marks are set.
	k.Change([]*Op{{Verb: Create, Addr: v4, Index: index, Lifetime: valid}})
	if f := find(t, v4); len(f) != 1 || !f[0].own() || f[0].Metric != model.AddressMetric {
		t.Errorf("%+v", f)
	}
	k.Change([]*Op{{Verb: Remove, Addr: v4, Index: index}})
	// A failure in the middle of a batch is told apart from the rest.
	ops := []*Op{
		{Verb: Create, Addr: v4, Index: index, Lifetime: valid}, {Verb: Renew, Addr: v6, Index: index, Lifetime: valid},
		{Verb: Create, Addr: v6, Index: 999, Lifetime: valid}, {Verb: Renew, Addr: v4, Index: index, Lifetime: valid},
	}
	k.Change(ops)
	for i, wanted := range []error{nil, unix.EINVAL, unix.ENODEV, nil} {
		if ops[i].Err != wanted {
			t.Errorf("batch: %d: %v, want %v", i, ops[i].Err, wanted)
		}
	}
	k.Change([]*Op{{Verb: Remove, Addr: v4, Index: index}})
}

// TestAddressThatCannotBeRemoved: if the kernel does not take an address away the report says
// that it is still there, and why.
func TestAddressThatCannotBeRemoved(t *testing.T) {
	k, err := openKernel()
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if err := unix.Dup3(int(null.Fd()), k.sock.Socket.GetFd(), unix.O_CLOEXEC); err != nil { // nothing can be asked any more
		t.Fatal(err)
	}
	d := &Driver{kernel: k, log: slog.New(slog.DiscardHandler)}
	h := &hold{want: model.Binding{Addr: v4, Interface: model.LoopbackInterface}, index: 1, there: true}
	if d.remove(nil, h); !h.there || !errors.Is(h.err, unix.ENOTSOCK) {
		t.Errorf("there %v, because of %v", h.there, h.err)
	}
}
