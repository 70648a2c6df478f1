package measure_test

import (
	"testing"
	"time"

	"lbd.dev/lbd/tests/lab/measure"
)

func TestStreamOf(t *testing.T) {
	whole := []measure.Line{{At: 0, Node: "m1", Number: 1}, {At: 200 * ms, Node: "m1", Number: 2}, {At: 700 * ms, Node: "m1", Number: 3}}
	with := func(l measure.Line) []measure.Line { return append(whole[:2:2], l, whole[2]) }
	for _, c := range []struct {
		name  string
		lines []measure.Line
		to    measure.Time
		want  measure.Stream
	}{
		{"nothing", nil, 100 * ms, measure.Stream{}},
		{"whole", whole, 800 * ms, measure.Stream{Lines: 3, Node: "m1", Gap: 500 * time.Millisecond}},
		{"silent since", whole, 2700 * ms, measure.Stream{Lines: 3, Node: "m1", Gap: 2 * time.Second}},
		{"before the end", whole, 300 * ms, measure.Stream{Lines: 2, Node: "m1", Gap: 200 * time.Millisecond}},
		{"ended", with(measure.Line{At: 300 * ms, Err: "reset"}), 800 * ms, measure.Stream{Lines: 2, Node: "m1", Gap: 200 * time.Millisecond, Broken: "it ended after 2 lines: reset"}},
		{"a line lost", with(measure.Line{At: 300 * ms, Node: "m1", Number: 4}), 800 * ms, measure.Stream{Lines: 2, Node: "m1", Gap: 200 * time.Millisecond, Broken: "line 4 came after line 2"}},
		{"another server", with(measure.Line{At: 300 * ms, Node: "m2", Number: 3}), 800 * ms, measure.Stream{Lines: 2, Node: "m1", Gap: 200 * time.Millisecond, Broken: "line 3 came from m2, those before from m1"}},
	} {
		if got := measure.StreamOf(c.lines, c.to); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestSilence(t *testing.T) {
	const s = measure.Time(time.Second)
	lines := []measure.Line{{At: s, Node: "a", Number: 1}, {At: 3 * s, Node: "a", Number: 2}, {At: 4 * s, Err: "reset"}, {At: 8 * s, Node: "b", Number: 1}}
	for _, c := range []struct {
		from, to measure.Time
		want     time.Duration
	}{{0, 2 * s, time.Second}, {s, 4 * s, 2 * time.Second}, {2 * s, 9 * s, 5 * time.Second}, {8 * s, 20 * s, 12 * time.Second}, {9 * s, 10 * s, time.Second}} {
		if got := measure.Silence(lines, c.from, c.to); got != c.want {
			t.Errorf("from %v to %v: %v, want %v", c.from, c.to, got, c.want)
		}
	}
}
