package route

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"lbd.dev/lbd/internal/model"
)

// TestPrune: what an earlier process left is removed, but only once all is heard, and what
// others made never is.
func TestPrune(t *testing.T) {
	l := newLab(t)
	for _, c := range []string{
		"nexthop add id 1 via 10.0.0.11 dev eth0 proto 108",
		"nexthop add id 2 via 10.0.0.12 dev eth0 proto 108",
		"nexthop add id 3 via 10.0.0.13 dev eth0",
		"nexthop add id 10 group 1/3 proto 108",
		"nexthop add id 11 group 2/3",
		"route add 203.0.113.9/32 nhid 10 proto 108 metric 27746",
		"route add unreachable 203.0.113.8/32 proto 108 metric 1818387456",
		"route add 203.0.113.7/32 via 10.0.0.11 proto 108",
		"-6 route add fd01::9/128 via fd00::11 proto 108 metric 27746",
		"route add 203.0.113.6/32 nhid 11",
		"-6 route add fd01::8/128 via fd00::11",
	} {
		l.IP(box, c)
	}
	others := func() string {
		return l.IP(box, "nexthop show id 3") + l.IP(box, "nexthop show id 11") + l.IP(box, "route show 203.0.113.6") + l.IP(box, "-6 route show fd01::8")
	}
	before, theirs := l.ours(), others()
	r := l.router()
	for what, change := range map[string]func(*model.Desired){
		"before all sources are heard": func(d *model.Desired) { d.Synced = false },
		"before all machines are":      func(d *model.Desired) { d.Routes.Hearing = true },
	} {
		if _, err := r.want(nil, change); err != nil || l.ours() != before {
			t.Errorf("%s: %v, %s", what, err, l.ours())
		}
	}
	r.has(wanted(resilient, "s1"))
	is := l.ours()
	for _, gone := range []string{"203.0.113.9", "203.0.113.8", "203.0.113.7", "fd01::9", "id 10 "} {
		if strings.Contains(is, gone) {
			t.Errorf("%s is still there: %s", gone, is)
		}
	}
	if !strings.Contains(is, "id 2 ") {
		t.Errorf("next hop 2, which is in a group of somebody else, is gone: %s", is)
	}
	if now := others(); now != theirs {
		t.Errorf("of others there is now %s", now)
	}

	var removed []string
	var err error
	l.In(box, func() { removed, err = Cleanup(context.Background()) })
	removed = slices.DeleteFunc(removed, func(s string) bool { return s == "table ip "+TableName }) // it may have been there for a moment yet
	if want := []string{"route to " + vip4.String(), "route to " + vip6.String()}; err != nil || !slices.Equal(removed, want) {
		t.Errorf("removed %v, %v", removed, err)
	}
	if is := l.ours(); strings.Contains(is, "203") || strings.Contains(is, "fd01") || others() != theirs {
		t.Errorf("after a cleanup there is %s", is)
	}
}

// TestForeignRoutesStay: a route of somebody else that leads to a group or a next hop of ours keeps it,
// as long as it is there.
func TestForeignRoutesStay(t *testing.T) {
	l := newLab(t)
	r := l.router()
	r.has(wanted(resilient, "s1", "s2"))
	group4, group6, one := r.image.routes[vip4].hop, r.image.routes[vip6].hop, r.image.at[target{gateway("s2", vip4), r.image.links["eth0"]}]
	commands := []string{
		fmt.Sprintf("route add 203.0.113.50/32 nhid %d", group4),
		fmt.Sprintf("-6 route add fd01::50/128 nhid %d table 300", group6),
		fmt.Sprintf("route add 203.0.113.51/32 nhid %d", one),
	}
	for _, c := range commands {
		l.IP(box, c)
	}
	others := func(when string) {
		t.Helper()
		for _, show := range []string{"route show 203.0.113.50", "-6 route show table 300", "route show 203.0.113.51"} {
			if is := l.IP(box, show); !strings.Contains(is, " nhid ") || !strings.Contains(is, " via ") {
				t.Errorf("%s: %s: %q", when, show, is)
			}
		}
	}
	others("made")
	r.has(wanted(resilient, "s3")) // their routes by groups follow
	others("other next hops")
	r.has(wanted(resilient))
	others("no next hop")
	r.has(nil)
	others("no prefix")
	if is := l.ours(); strings.Contains(is, "203.0.113.1") || strings.Count(is, "group") != 2 {
		t.Errorf("of ours there is\n%s", is)
	}
	r.settles()
	for _, c := range commands {
		l.IP(box, strings.Replace(c, " add ", " del ", 1))
	}
	r.foreign.Store(true) // it looks again
	r.has(nil)
	if is := l.ours(); is != "" {
		t.Errorf("left: %s", is)
	}
}
