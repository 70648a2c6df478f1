package health

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// TestHundredsOfTheSameCheckAreOne: one for each VIP, as users write them. The service is
// asked as if there were one.
func TestHundredsOfTheSameCheckAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, other := &service{}, &service{}
		b := newBench(t, map[string]*service{"api": api, "other": other})
		checks := map[string]v1alpha1.HealthCheck{"other": fakeCheck("other")}
		for i := range 300 {
			checks[fmt.Sprint("vip", i)] = fakeCheck("api")
		}
		b.SetChecks(checks)
		sleep(5250 * time.Millisecond)
		if n := len(api.starts()); n != 11 {
			t.Errorf("asked %d times in 5.25 s, want 11", n)
		}
		if stats := b.Stats(); len(stats) != 301 || stats["vip299"].Successes != 11 {
			t.Errorf("%d entries, the last is %+v", len(stats), stats["vip299"])
		}
		before := b.count()
		api.set(errRefused, false)
		sleep(time.Second)
		for i := range 300 {
			if got := b.state(fmt.Sprint("vip", i)); got.State != model.HealthDown || got.Detail != errRefused.Error() {
				t.Fatalf("vip%d is %+v", i, got)
			}
		}
		if got := b.state("other").State; got != model.HealthUp {
			t.Errorf("another check is %v", got)
		}
		if n := b.count() - before; n != 1 {
			t.Errorf("published %d times, want once", n)
		}
	})
}

// TestOneOfTheSameChecksGoesItsOwnWay: what shares a check may change, end and join.
func TestOneOfTheSameChecksGoesItsOwnWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, other := &service{}, &service{}
		b := newBench(t, map[string]*service{"api": api, "other": other})
		up, down := fakeCheck("api"), fakeCheck("other")
		other.set(errRefused, false)
		b.SetChecks(map[string]v1alpha1.HealthCheck{"a": up, "b": up, "c": down})
		sleep(2250 * time.Millisecond)
		expect := func(when string, want map[string]model.Health) {
			t.Helper()
			for name, state := range want {
				if got := b.state(name).State; got != state {
					t.Errorf("%s %s is %v, want %v", when, name, got, state)
				}
			}
		}
		expect("at first", map[string]model.Health{"a": model.HealthUp, "b": model.HealthUp, "c": model.HealthDown})
		asked := len(api.starts())
		// b joins c, whose check goes on; d is new and knows at once what a knows.
		b.SetChecks(map[string]v1alpha1.HealthCheck{"a": up, "b": down, "c": down, "d": up})
		synctest.Wait()
		expect("after the change", map[string]model.Health{"a": model.HealthUp, "b": model.HealthDown, "d": model.HealthUp})
		if n := len(api.starts()); n != asked {
			t.Error("the check of a was restarted")
		}
		// a and c, which differ, change to the same new settings: each keeps what it was until
		// those have led to a state.
		slow := up
		slow.Rise = 3
		b.SetChecks(map[string]v1alpha1.HealthCheck{"a": slow, "c": slow})
		sleep(750 * time.Millisecond)
		expect("before three successes", map[string]model.Health{"a": model.HealthUp, "c": model.HealthDown})
		sleep(time.Second)
		expect("after three", map[string]model.Health{"a": model.HealthUp, "c": model.HealthUp})
		asked = len(other.starts())
		sleep(time.Second)
		if n := len(other.starts()); n != asked {
			t.Error("what nobody asks for goes on")
		}
	})
}
