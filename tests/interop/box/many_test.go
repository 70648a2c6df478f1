package box

import (
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestSiteMany: many masters connect at once, as after a restart of a box. The kernel sends to all of
// them soon, they are not taken for a flood, and it sends to none of those that have left.
func TestSiteMany(t *testing.T) {
	const many = 100
	s := newSite(t)
	s.start("b1", "s1")
	s.await("s1", "b1")
	for i := range many {
		s.Exec("ip", "addr", "add", fmt.Sprintf("10.0.0.%d/24", 100+i), "dev", "br0")
	}
	begin := time.Now()
	var wg sync.WaitGroup
	all := make([]net.Conn, many)
	for i := range many {
		wg.Go(func() {
			from := fmt.Sprintf("10.0.0.%d", 100+i)
			c, err := joinAs(from)
			if err != nil {
				t.Error(err)
				return
			}
			all[i] = c
			_, _ = c.Write(update(from, 1, false))
		})
	}
	wg.Wait()
	up := time.Since(begin)
	end := make(chan struct{})
	defer close(end)
	for _, c := range all {
		if c == nil {
			t.FailNow()
		}
		defer func() { _ = c.Close() }()
		go func() {
			for {
				select {
				case <-end:
					return
				case <-time.After(time.Second):
					_, _ = c.Write(message(4))
				}
			}
		}()
	}
	s.awaitHops("b1", many+1)
	t.Logf("%d sessions are up after %v, and the kernel sends to all after %v", many, up, time.Since(begin))
	begin = time.Now()
	for _, c := range all {
		_ = c.Close()
	}
	s.awaitHops("b1", 1)
	t.Logf("they have left the kernel %v after their connections ended", time.Since(begin))
	s.await("s1", "b1")
	if log := s.hosts["b1"].log.String(); strings.Contains(log, "more than it may") {
		t.Error("they were taken for a flood")
	}
}

// awaitHops waits until the kernel of a box sends to so many masters.
func (s *site) awaitHops(box string, n int) {
	s.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		out, _ := exec.Command("ip", "-n", s.NS(box), "route", "show", siteVIP).CombinedOutput()
		is := strings.Count(string(out), " via 10.0.0.")
		if is == n {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("%s sends to %d masters of %d", box, is, n)
		}
	}
}
