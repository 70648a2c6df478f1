package route

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/announce"
	"lbd.dev/lbd/internal/model"
)

// TestInterfacesAreForgotten once they are gone: a router may see a million come and go.
func TestInterfacesAreForgotten(t *testing.T) {
	running := make(map[int32]bool)
	says := func(kind uint16, index int32, flags uint32) bool {
		data := make([]byte, unix.SizeofIfInfomsg)
		binary.NativeEndian.PutUint32(data[4:], uint32(index))
		binary.NativeEndian.PutUint32(data[8:], flags)
		return concerns(&syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: kind}, Data: data}, 0, running)
	}
	const up = unix.IFF_UP | unix.IFF_LOWER_UP
	for index := int32(1); index < 100; index++ {
		for i, m := range []struct {
			kind  uint16
			flags uint32
			news  bool
		}{
			{unix.RTM_NEWLINK, unix.IFF_UP, true},
			{unix.RTM_NEWLINK, unix.IFF_UP, false},
			{unix.RTM_NEWLINK, up, true},
			{unix.RTM_NEWLINK, up, false},
			{unix.RTM_DELLINK, up, true},
			{unix.RTM_NEWLINK, unix.IFF_UP, true},
			{unix.RTM_DELLINK, 0, false}, // it did not run
		} {
			if news := says(m.kind, index, m.flags); news != m.news {
				t.Fatalf("message %d: news %v", i, news)
			}
		}
	}
	if len(running) > 0 {
		t.Errorf("%d interfaces that are gone are known", len(running))
	}
}

// TestLookedAtWithoutACause: what nobody tells of is put right by and by, although time passes only.
func TestLookedAtWithoutACause(t *testing.T) {
	l := newLab(t)
	r := l.router()
	want := &model.Desired{Synced: true, Routes: model.RouteState{Routes: wanted(resilient, machines...)}}
	r.has(want.Routes.Routes)
	r.stop()
	r.watcher.Wait()
	ways := l.ways()
	ctx, stop := context.WithCancel(t.Context())
	runner := announce.NewRunner(r.Driver, slog.New(slog.DiscardHandler), func(model.SinkName, model.Applied) {})
	runner.Submit(want)
	var done sync.WaitGroup
	done.Go(func() { _ = runner.Run(ctx) })
	defer func() { stop(); done.Wait() }()
	time.Sleep(100 * time.Millisecond)
	l.IP(box, fmt.Sprintf("route del %s metric 27746", vip4))
	begin := time.Now()
	if l.ways() == ways {
		t.Fatal("nothing has changed")
	}
	await(t, "a look", func() bool {
		same := *want
		runner.Extend(&same)
		return l.ways() == ways
	})
	t.Logf("put right after %v", time.Since(begin))
}
