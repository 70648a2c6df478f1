package measure

import (
	"testing"
	"time"
)

func TestRoutes(t *testing.T) {
	const p = "10.99.0.200/32"
	ms := func(n int) Time { return Time(n * int(time.Millisecond)) }
	swap := []Route{
		{At: ms(1), Prefix: p, Via: []string{"a"}}, {At: ms(20), Prefix: p, Del: true}, {At: ms(21), Prefix: p, Via: []string{"a"}},
		{At: ms(30), Prefix: p, Del: true}, {At: ms(39), Prefix: p, Via: []string{"a"}},
	}
	if c := Changes(swap, p, ms(10), ms(29)); len(c) != 0 {
		t.Errorf("a replaced route: %v", c)
	}
	if c := Changes(swap, p, ms(10), ms(40)); len(c) != 2 {
		t.Errorf("a route that was gone: %v", c)
	}
	events := []Route{
		{At: 10, Prefix: p, Via: []string{"a"}},
		{At: 20, Prefix: p, Via: []string{"a", "b"}},
		{At: 25, Prefix: p, Via: []string{"a", "b"}}, // another group, the same gateways
		{At: 30, Prefix: "10.99.0.201/32", Via: []string{"b"}},
		{At: 40, Prefix: p, Via: []string{"b"}},
		{At: 50, Prefix: p, Del: true},
		{At: ms(60), Prefix: p, Via: []string{"a", "b"}},
	}
	if via := Via(events, p, 39); len(via) != 2 {
		t.Errorf("before the change: %v", via)
	}
	if at, ok := ViaGone(events, p, "a", 15); !ok || at != 40 {
		t.Errorf("a gone at %v %v", at, ok)
	}
	if at, ok := ViaGone(events, p, "b", 15); !ok || at != 50 {
		t.Errorf("b gone at %v %v", at, ok)
	}
	if at, ok := ViaThere(events, p, "a", 41); !ok || at != ms(60) {
		t.Errorf("a there at %v %v", at, ok)
	}
	if _, ok := ViaThere(events, p, "c", 0); ok {
		t.Error("c was there")
	}
	if at, ok := ViaCount(events, p, 2, 0); !ok || at != 20 {
		t.Errorf("two at %v %v", at, ok)
	}
	if c := Changes(events, p, 21, ms(100)); len(c) != 3 || c[0].At != 40 {
		t.Errorf("changes: %v", c)
	}
	if c := Changes(events, p, 21, 40); len(c) != 0 {
		t.Errorf("changes before the first: %v", c)
	}
}

func TestHole(t *testing.T) {
	const p = "10.99.0.200/32"
	routes := []Route{{At: 10, Prefix: p, Via: []string{"a"}}, {At: 100, Prefix: p, Del: true}}
	for name, c := range map[string]struct {
		addrs    []Addr
		from, to Time
		want     time.Duration
	}{
		"held all along":        {[]Addr{{At: 5, Addr: "v"}, {At: 150, Addr: "v", Del: true}}, 0, 200, 0},
		"gone too early":        {[]Addr{{At: 5, Addr: "v"}, {At: 70, Addr: "v", Del: true}}, 0, 200, 30},
		"gone and back":         {[]Addr{{At: 5, Addr: "v"}, {At: 70, Addr: "v", Del: true}, {At: 80, Addr: "v"}}, 0, 200, 10},
		"bound too late":        {[]Addr{{At: 30, Addr: "v"}}, 0, 200, 20},
		"another address":       {[]Addr{{At: 5, Addr: "v"}, {At: 70, Addr: "w", Del: true}}, 0, 200, 0},
		"cut at the beginning":  {nil, 50, 200, 50},
		"cut at the end":        {nil, 0, 30, 20},
		"the route never ended": {[]Addr{{At: 5, Addr: "v"}, {At: 60, Addr: "v", Del: true}}, 0, 90, 30},
	} {
		if got := Hole(routes, p, "a", c.addrs, "v", c.from, c.to); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
