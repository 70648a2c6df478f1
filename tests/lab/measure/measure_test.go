package measure_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"lbd.dev/lbd/tests/lab/measure"
)

const ms = measure.Time(time.Millisecond)

// attempts makes one every 5 ms over 4 s; those in [from, to) ms fail after 250.
func attempts(fails ...[2]int) []measure.Attempt {
	var a []measure.Attempt
	for t := 0; t < 4000; t += 5 {
		x := measure.Attempt{Start: measure.Time(t) * ms, End: measure.Time(t)*ms + ms/2, Node: "m1"}
		for _, f := range fails {
			if t >= f[0] && t < f[1] {
				x.Err, x.Node, x.End = "timeout", "", x.Start+250*ms
			}
		}
		a = append(a, x)
	}
	return a
}

func TestReached(t *testing.T) {
	half := 500 * time.Microsecond
	tests := []struct {
		name   string
		fails  [][2]int
		outage time.Duration
		failed int
		never  bool
	}{
		{"nothing failed", nil, 0, 0, false},
		{"one gap", [][2]int{{1000, 1200}}, 205*time.Millisecond + half, 40, false},
		{"one attempt", [][2]int{{1000, 1005}}, 10*time.Millisecond + half, 1, false},
		{"a success in between does not end it", [][2]int{{1000, 1100}, {1900, 2000}}, 1005*time.Millisecond + half, 40, false},
		{"two outages: the longer", [][2]int{{500, 600}, {1700, 2000}}, 305*time.Millisecond + half, 80, false},
		{"not over: calm too short", [][2]int{{3500, 3600}}, 105*time.Millisecond + half, 20, true},
		{"not over: no success", [][2]int{{3500, 4000}}, 750 * time.Millisecond, 100, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := measure.Reached(attempts(tt.fails...), 0, 4000*ms)
			if r.Outage != tt.outage || r.Failed != tt.failed || r.Never != tt.never {
				t.Fatalf("got outage %v failed %d never %v, want %v %d %v", r.Outage, r.Failed, r.Never, tt.outage, tt.failed, tt.never)
			}
		})
	}
}

func frames(mac string, from, to int) []measure.Frame {
	var f []measure.Frame
	for t := from; t < to; t += 20 {
		f = append(f, measure.Frame{At: measure.Time(t) * ms, Kind: measure.Answer, VIP: "v", MAC: mac})
	}
	return f
}

func TestDual(t *testing.T) {
	tests := []struct {
		name   string
		frames [][]measure.Frame
		want   time.Duration
	}{
		{"one after the other", [][]measure.Frame{frames("a", 0, 400), frames("b", 400, 900)}, 0},
		{"overlap", [][]measure.Frame{frames("a", 0, 400), frames("b", 300, 900)}, 80 * time.Millisecond},
		{"three are not counted twice", [][]measure.Frame{frames("a", 0, 400), frames("b", 0, 400), frames("c", 0, 400)}, 380 * time.Millisecond},
		{"one stray claim", [][]measure.Frame{frames("a", 0, 400), frames("b", 200, 210)}, 20 * time.Millisecond},
		{"gap, then back", [][]measure.Frame{frames("a", 0, 100), frames("b", 200, 300), frames("a", 400, 500)}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var all []measure.Frame
			for _, f := range tt.frames {
				all = append(all, f...)
			}
			if got := measure.Dual(all, "v", 0, 1000*ms); got != tt.want {
				t.Fatalf("got %v, want %v", got, tt.want)
			}
			if got := measure.Dual(all, "other", 0, 1000*ms); got != 0 {
				t.Fatalf("other VIP: got %v", got)
			}
		})
	}
}

func TestTakeover(t *testing.T) {
	all := append(frames("a", 0, 100), frames("b", 300, 400)...)
	at, ok := measure.Takeover(all, "v", "a", 50*ms)
	if !ok || at != 300*ms {
		t.Fatalf("got %v %v", at, ok)
	}
	if _, ok := measure.Takeover(all, "v", "b", 150*ms); ok {
		t.Fatal("found a takeover where none was")
	}
	if last, ok := measure.LastClaim(all, "v", "a", 0, 1000*ms); !ok || last != 80*ms {
		t.Fatalf("last claim: got %v %v", last, ok)
	}
}

func TestConns(t *testing.T) {
	e := []measure.ConnEvent{
		{At: 0, Conn: 0, Kind: measure.ConnOpen},
		{At: 0, Conn: 1, Kind: measure.ConnOpen},
		{At: 0, Conn: 2, Kind: measure.ConnOpen},
		{At: 0, Conn: 3, Kind: measure.ConnOpen},
		{At: 0, Conn: 4, Kind: measure.ConnOpen},
		{At: 5, Conn: 4, Kind: measure.ConnLost}, // before the fault
		{At: 11, Conn: 1, Kind: measure.ConnLost},
		{At: 12, Conn: 2, Kind: measure.ConnStall},
		{At: 13, Conn: 2, Kind: measure.ConnResume},
		{At: 14, Conn: 3, Kind: measure.ConnStall},
	}
	got := measure.ConnsIn(e, 10, 20)
	want := measure.Conns{Open: 4, Lost: 1, Stalled: 1, Hanging: 1}
	if got != want || got.Survived() != 2 {
		t.Fatalf("got %+v, want %+v", got, want)
	}
}

func TestEndings(t *testing.T) {
	e := []measure.ConnEvent{
		{Conn: 0, Kind: measure.ConnOpen, Node: "m1"},
		{Conn: 1, Kind: measure.ConnOpen, Node: "m2"},
		{At: 5 * ms, Conn: 1, Kind: measure.ConnLost, Err: "reset"}, // before the fault
		{At: 12 * ms, Conn: 0, Kind: measure.ConnLost, Err: "reset"},
	}
	got := measure.Endings(e, 10*ms)
	if want := []string{"connection 0 to m1: lost after 2ms reset"}; !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
}

func TestSpread(t *testing.T) {
	s := measure.SpreadOf([]time.Duration{4 * time.Millisecond, time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond})
	if s.String() != "1 / 2 / 4" || s.Median != 2500*time.Microsecond {
		t.Fatalf("got %v, median %v", s, s.Median)
	}
	if measure.SpreadOf(nil).String() != "-" {
		t.Fatal("empty spread")
	}
}

// TestStandstill: where every sleep ends in time nothing stood still.
func TestStandstill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := measure.Standstill()
		time.Sleep(52 * time.Millisecond)
		if worst := stop(); worst != 0 {
			t.Errorf("stood still for %v", worst)
		}
	})
}
