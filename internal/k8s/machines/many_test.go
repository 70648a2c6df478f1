package machines

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// TestMany: hundreds of Machines that change all the time in what does not count cost
// no write, and those that drain at once one write for each pause at most.
func TestMany(t *testing.T) {
	const many = 500
	b := start(t, served(), nil)
	b.api.Put(resBalancers, object("a/api", mlb))
	put := func(i int, more string) {
		b.api.Put(resMachines, aMachine(fmt.Sprintf("a/m%03d", i), fmt.Sprintf("cp%d", i), fmt.Sprintf("10.0.%d.%d", i/100, 10+i%100), more))
	}
	var group []model.MachineMember
	for i := range many {
		put(i, ``)
		if i < 5 {
			group = append(group, model.MachineMember{Node: model.NodeName(fmt.Sprintf("cp%d", i)),
				Standing: map[netip.Addr]model.Reason{netip.MustParseAddr("10.0.0.200"): model.ReasonStandby}})
		}
	}
	b.decide(true, group...)
	eventually(t, "5 of 500", func() bool { return b.status("a/api").Status == "5 of 500 members healthy" })
	count := func(method, part string) (n int) {
		for _, r := range b.api.Requests() {
			if strings.HasPrefix(r, method) && strings.Contains(r, part) {
				n++
			}
		}
		return n
	}
	// Only what was taken counts: a busy machine may write again what is not yet back
	// from the watch, and the API refuses that.
	before := b.api.Versions(resBalancers, "a", "api")
	began := time.Now()
	for i := range many {
		put(i, `"metadata":{"annotations":{"x":"`+fmt.Sprint(i)+`"}}`)
	}
	for i := range many {
		put(i, `"metadata":{"labels":{"lbd.dev/drain":""}}`)
	}
	eventually(t, "all drain", func() bool {
		b.mu.Lock()
		drains := len(b.view.Machines.Drains)
		b.mu.Unlock()
		return drains == many && b.status("a/api").HealthyCount == 0
	})
	time.Sleep(2 * statusPause)
	if n, most := b.api.Versions(resBalancers, "a", "api")-before, 2+int(time.Since(began)/statusPause); n > most {
		t.Errorf("%d writes, at most %d were allowed", n, most)
	}
	if n := count(http.MethodGet, "/machines"); n > 10 {
		t.Errorf("%d reads of Machines", n)
	}
}
