package nodestatus

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"lbd.dev/lbd/internal/model"
)

// service is the layer 2 VIP of Service n with an address of its own, announced if n1 owns it.
func service(n int, owner model.NodeName, epoch uint64) model.VIPStatus {
	base := netip.MustParseAddr("192.0.2.0").As4()
	base[2], base[3] = base[2]+byte(n>>8), byte(n)
	return model.VIPStatus{
		VIP:   model.VIP{Kind: "Service", Name: fmt.Sprintf("default/s%d", n), Addr: netip.AddrFrom4(base)},
		Owner: owner, Epoch: epoch, Announced: owner == "n1",
	}
}

// with is a VIP after a change.
func with(v model.VIPStatus, change func(*model.VIPStatus)) model.VIPStatus {
	change(&v)
	return v
}

// looker looks at VIPs twice a second.
type looker struct {
	assignments
	now time.Time
}

func newLooker() *looker {
	return &looker{assignments: assignments{tokens: assignedBurst}, now: time.Unix(1000, 0)}
}

// look looks for a while at VIPs, and returns the names that events told of.
func (l *looker) look(lasts time.Duration, all ...model.VIPStatus) string {
	var told []string
	for end := l.now.Add(lasts); l.now.Before(end); l.now = l.now.Add(Look) {
		if v := l.next("n1", true, all, l.now); v != nil {
			told = append(told, strings.TrimPrefix(v.VIP.Name, "default/"))
		}
	}
	return strings.Join(told, " ")
}

// TestWhatIsAssigned walks one node through what happens to its VIPs, a minute at a time.
func TestWhatIsAssigned(t *testing.T) {
	silent := func(v *model.VIPStatus) { v.Announced = false }
	heir := with(service(1, "n1", 2), func(v *model.VIPStatus) { v.VIP.Name = "default/heir" })
	l := newLooker()
	for _, c := range []struct {
		what string
		vips []model.VIPStatus
		want string
	}{
		{"first look", []model.VIPStatus{service(0, "n1", 1), service(1, "n2", 1), with(service(2, "n1", 1), silent)}, ""},
		{"one answers that was owned at the first look", []model.VIPStatus{service(0, "n1", 1), service(1, "n2", 1), service(2, "n1", 1)}, ""},
		{"one is owned, and does not answer yet", []model.VIPStatus{with(service(1, "n1", 2), silent)}, ""},
		{"it answers", []model.VIPStatus{service(1, "n1", 2)}, "s1"},
		{"it does not answer for a moment", []model.VIPStatus{with(service(1, "n1", 2), silent)}, ""},
		{"it answers again", []model.VIPStatus{service(1, "n1", 2)}, ""},
		{"it went away and came back", []model.VIPStatus{service(1, "n1", 4)}, "s1"},
		{"it went away", []model.VIPStatus{service(1, "n2", 5)}, ""},
		{"by BGP all announce it", []model.VIPStatus{with(service(1, "n1", 0), func(v *model.VIPStatus) { v.BGP = true })}, ""},
		{"it came back with an old epoch", []model.VIPStatus{service(1, "n1", 2)}, "s1"},
		{"another Service has its address at once", []model.VIPStatus{heir}, "heir"},
		{"none has it", nil, ""},
		{"the first Service has it again", []model.VIPStatus{service(1, "n1", 2)}, "s1"},
	} {
		if got := l.look(assignedPause, c.vips...); got != c.want {
			t.Errorf("%s: told of %q, want %q", c.what, got, c.want)
		}
	}
	l.look(assignedPause)
	if len(l.known)+len(l.told) > 0 {
		t.Errorf("of VIPs that are gone there remain %v, %v", l.known, l.told)
	}
}

// TestAssignedAfterStart: what a node resumes before it is settled is no news, nor the higher epoch
// that it has then.
func TestAssignedAfterStart(t *testing.T) {
	l := newLooker()
	for _, vips := range [][]model.VIPStatus{nil, {service(0, "n1", 1)}} {
		if v := l.next("n1", false, vips, l.now); v != nil {
			t.Errorf("told of %v", v.VIP.Name)
		}
	}
	if got := l.look(assignedPause, service(0, "n1", 2)); got != "" {
		t.Errorf("told of %q", got)
	}
	if got := l.look(assignedPause, service(0, "n1", 2), service(1, "n1", 1)); got != "s1" {
		t.Errorf("told of %q", got)
	}
}

// TestAssignedIsPaced: however many VIPs there are and whatever they do, a node sends a few events
// in a row and then one now and then, each address has one in a while, and none is forgotten.
func TestAssignedIsPaced(t *testing.T) {
	const all = 600 // more than a status has room for
	vips := func(epoch uint64) (list []model.VIPStatus) {
		for n := range all {
			list = append(list, service(n, "n1", epoch))
		}
		return list
	}
	l := newLooker()
	l.look(Look)
	if v := l.next("n1", true, vips(1), l.now); v == nil || v.VIP.Name != "default/s0" {
		t.Fatalf("first %v", v)
	}
	if got := len(strings.Fields(l.look(assignedBurst*Look, vips(1)...))); got < assignedBurst-1 || got > assignedBurst+3 {
		t.Errorf("%d in a row", got)
	}
	if got := len(strings.Fields(l.look(time.Minute, vips(1)...))); got < int(time.Minute/assignedEvery)-1 || got > int(time.Minute/assignedEvery)+1 {
		t.Errorf("%d in the next minute", got)
	}
	told := make(map[string]int)
	for n := range l.known {
		told[strings.TrimPrefix(n.name, "default/")]++
	}
	for _, name := range strings.Fields(l.look(time.Hour, vips(1)...)) {
		told[name]++
	}
	if len(told) != all {
		t.Errorf("of %d VIPs %d were told", all, len(told))
	}
	for name, n := range told {
		if n != 1 {
			t.Errorf("%s was told %d times", name, n)
		}
	}
	if got := l.look(time.Hour, vips(1)...); got != "" {
		t.Errorf("told again: %s", got)
	}
}

// TestAssignedWhileItFlaps: an address that moves all the time is told of once a minute, and in the
// end as it is; one that moves once need not wait for those.
func TestAssignedWhileItFlaps(t *testing.T) {
	const minutes = 10
	for _, flapping := range []int{2, 20} { // of 20, less than one a minute is told
		l := newLooker()
		l.look(Look)
		at := func(v model.VIPStatus) model.VIPStatus { v.Since = l.now; return v }
		count := make(map[string]int)
		told := 0
		var once []model.VIPStatus // s100
		for second := range minutes * 60 {
			if second == minutes*60/2 {
				once = []model.VIPStatus{at(service(100, "n1", 1))}
			}
			var vips []model.VIPStatus
			for n := range flapping {
				vips = append(vips, at(service(n, "n1", uint64(2*second)))) // it was away for a moment
			}
			for _, name := range strings.Fields(l.look(time.Second, append(vips, once...)...)) {
				count[name]++
				told++
				if name != "s100" {
					continue
				}
				if waited := l.now.Sub(once[0].Since); waited > 2*assignedEvery {
					t.Errorf("%d flap: the one that moved once waited for %v", flapping, waited)
				}
			}
		}
		if most := assignedBurst + int(minutes*time.Minute/assignedEvery); told > most || told < min(most, minutes*flapping)-1 {
			t.Errorf("%d flap: %d events", flapping, told)
		}
		for name, n := range count {
			if n > minutes {
				t.Errorf("%d flap: %s was told %d times in %d minutes", flapping, name, n, minutes)
			}
		}
		if count["s100"] != 1 {
			t.Errorf("%d flap: the one that moved once was told %d times: %v", flapping, count["s100"], count)
		}
		if got := l.look(2*time.Minute, at(service(0, "n1", 1000))); got != "s0" {
			t.Errorf("%d flap: in the end told %q", flapping, got)
		}
	}
}
