package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/tenants/propagate"
)

// answer is an error with which an API server answers.
func answer(code int) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Code: int32(code), Message: fmt.Sprint("answer ", code)}}
}

var web = model.Key{Namespace: "default", Name: "web"}

// offer is a job that has ended with err.
func offer(body string, err error) *job {
	return &job{id: "TenantService/default.web", side: SideHub, what: "TenantService", body: body, pause: servicePause, refuses: web, done: true, err: err}
}

// waits is how long a job waits.
func (l *loop) waits(j *job, now time.Time) time.Duration {
	if due, next := l.due([]*job{j}, now); len(due[j.side]) == 0 {
		return next.Sub(now)
	}
	return 0
}

// TestRefusedBodyWaits: what is refused is offered again ever more rarely; what was put right, or is to be
// deleted, waits only for its pause.
func TestRefusedBodyWaits(t *testing.T) {
	l, now := loopFor(t), time.Now()
	var last time.Duration
	for i := range 20 {
		l.finish(SideHub, []*job{offer("x", answer(http.StatusForbidden))}, now)
		last = l.waits(offer("x", nil), now)
		if least := min(k8s.RetryFirst<<i, refusedMost); last < least || last > 2*least {
			t.Errorf("after %d refusals it waits for %v, want %v and up to as much again", i+1, last, least)
		}
		for _, body := range []string{"y", "delete uid"} {
			if got := l.waits(offer(body, nil), now); got != servicePause {
				t.Errorf("after %d refusals %q waits for %v", i+1, body, got)
			}
		}
		now = now.Add(last)
	}
	if last < 10*time.Minute {
		t.Errorf("refused for long, it is offered again after %v", last)
	}
	l.finish(SideHub, []*job{offer("y", nil)}, now)
	l.finish(SideHub, []*job{offer("x", answer(http.StatusForbidden))}, now)
	if got := l.waits(offer("x", nil), now); got > 2*k8s.RetryFirst && got != servicePause {
		t.Errorf("refused after another one was taken, it waits for %v", got)
	}
}

// TestPutBack: a refusal counts no more once nothing is to be written, and what is refused again is offered
// after its pause.
func TestPutBack(t *testing.T) {
	l, now := loopFor(t), time.Now()
	for range 12 {
		l.finish(SideHub, []*job{offer("x", answer(http.StatusForbidden))}, now)
	}
	if l.forget([]*job{offer("x", nil)}, now) || l.input().Refused[web] == "" {
		t.Error("a refusal is forgotten that stands")
	}
	if !l.forget(nil, now) || len(l.input().Refused) > 0 {
		t.Errorf("it counts as refused: %v", l.input().Refused)
	}
	if l.forget(nil, now) {
		t.Error("forgotten twice")
	}
	if got := l.waits(offer("x", nil), now); got != servicePause {
		t.Errorf("the same again waits for %v", got)
	}
}

// TestFlips: what changes ten times a second is written twice a second, whatever it is.
func TestFlips(t *testing.T) {
	write := func(uid string, spec *v1alpha1.TenantServiceSpec) propagate.Write[v1alpha1.TenantServiceSpec] {
		return propagate.Write[v1alpha1.TenantServiceSpec]{Name: "default.web", UID: uid, Spec: spec}
	}
	spec := func(i int) *v1alpha1.TenantServiceSpec { return &v1alpha1.TenantServiceSpec{Pool: fmt.Sprint(i)} }
	for name, out := range map[string]func(i int) propagate.Output{
		"statuses": func(i int) propagate.Output {
			return propagate.Output{Statuses: []propagate.Status{{Service: web, Condition: &v1alpha1.Condition{Message: fmt.Sprint(i)}}}}
		},
		"changes": func(i int) propagate.Output {
			return propagate.Output{Services: []propagate.Write[v1alpha1.TenantServiceSpec]{write("u", spec(i))}}
		},
		"made and deleted": func(i int) propagate.Output {
			if i%2 == 0 {
				return propagate.Output{Services: []propagate.Write[v1alpha1.TenantServiceSpec]{write("", spec(i))}}
			}
			return propagate.Output{Services: []propagate.Write[v1alpha1.TenantServiceSpec]{write(fmt.Sprint("u", i), nil)}}
		},
	} {
		for _, err := range []error{nil, answer(http.StatusForbidden)} {
			l, now, n := loopFor(t), time.Now(), 0
			for i := range 100 {
				decision := out(i)
				due, _ := l.due(l.jobs(&propagate.Input{}, &decision), now)
				for side, jobs := range due {
					for _, j := range jobs {
						n++
						j.done, j.err = true, err
					}
					l.finish(side, jobs, now)
				}
				now = now.Add(100 * time.Millisecond)
			}
			if n < 10 || n > 20 {
				t.Errorf("%s, %v: %d writes in 10 s", name, err, n)
			}
		}
	}
}

// TestSidesApart: the backlog of one side does not keep the other one from its turn.
func TestSidesApart(t *testing.T) {
	l, now := loopFor(t), time.Now()
	var jobs []*job
	for i := range 3 * maxBatch {
		jobs = append(jobs, &job{id: fmt.Sprint("hub ", i), side: SideHub})
	}
	jobs = append(jobs, &job{id: "status", side: SideTenant})
	due, next := l.due(jobs, now)
	if len(due[SideHub]) != maxBatch || len(due[SideTenant]) != 1 || !next.Equal(now) {
		t.Errorf("%d for the hub, %d for the tenant, next after %v", len(due[SideHub]), len(due[SideTenant]), next.Sub(now))
	}
}

// TestRefusals: which answers are about the object.
func TestRefusals(t *testing.T) {
	for code, want := range map[int]bool{400: true, 403: true, 404: true, 409: true, 413: true, 422: true, 401: false, 408: false, 429: false, 500: false, 503: false} {
		if got := refusedObject(fmt.Errorf("wrapped: %w", answer(code))); got != want {
			t.Errorf("%d: %v", code, got)
		}
	}
	if refusedObject(errors.New("connection refused")) || refusedObject(context.DeadlineExceeded) {
		t.Error("a cluster that does not answer refuses nothing")
	}
}

// TestPoisoned: objects for which an API server fails cost no other object its write. A side is down if
// nothing gets through, and is then left alone.
func TestPoisoned(t *testing.T) {
	b := newBed(t)
	a, _ := b.start("one")
	b.eventually("it leads", a.elector.Valid)
	for name, c := range map[string]struct {
		bad, good int
		down      bool
	}{"some": {6, 30, false}, "all": {100, 0, true}} {
		t.Run(name, func(t *testing.T) {
			l := newLoop(a)
			var tried atomic.Int32
			var jobs []*job
			for i := range c.bad + c.good {
				err := error(nil)
				if i < c.bad {
					err = answer(http.StatusInternalServerError)
				}
				jobs = append(jobs, &job{id: fmt.Sprint(i), side: SideHub, body: "x", run: func(context.Context) error {
					tried.Add(1)
					if err == nil {
						time.Sleep(10 * time.Millisecond) // the others fail before it gets through
					}
					return err
				}})
			}
			other := &job{id: "other", side: SideTenant, body: "x", run: func(context.Context) error { return nil }}
			before := time.Now()
			again := l.write(t.Context(), map[string][]*job{SideHub: jobs, SideTenant: {other}})
			if down := !l.sides[SideHub].at.IsZero(); down != c.down || !again || !other.done || l.sides[SideTenant].fails {
				t.Errorf("down: %v, again: %v, other: %v", down, again, other.done)
			}
			if n := int(tried.Load()); !c.down && n != len(jobs) || n >= c.bad && c.down {
				t.Errorf("%d of %d tried", n, len(jobs))
			}
			s := l.sides[SideHub]
			if c.down && s.at.Sub(before) < s.wait {
				t.Error("the side is tried again at once")
			}
			for _, j := range jobs[:c.bad] {
				if p := l.past[j.id]; !c.down && l.waits(j, p.sent) == 0 {
					t.Errorf("%s is tried again at once", j.id)
				}
			}
		})
	}
}

// TestRoom: once the hub has deleted an object, those that it refused are offered again soon, and not all
// the time.
func TestRoom(t *testing.T) {
	l, now := loopFor(t), time.Now()
	for range 20 {
		l.finish(SideHub, []*job{offer("x", answer(http.StatusForbidden))}, now)
	}
	decision := propagate.Output{Services: []propagate.Write[v1alpha1.TenantServiceSpec]{{Name: "default.gone", UID: "u"}}}
	for range 100 {
		gone := l.jobs(&propagate.Input{}, &decision)
		gone[0].done = true
		l.finish(SideHub, gone, now)
	}
	if got := l.waits(offer("x", nil), now); got > k8s.RetryMost || got == 0 {
		t.Errorf("it waits for %v", got)
	}
}

// TestOneWarning: that writes fail, or are refused, is told once, and once that they are not any more.
func TestOneWarning(t *testing.T) {
	l, now := loopFor(t), time.Now()
	var text bytes.Buffer
	l.a.o.Logger = slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	each := func(err error) (jobs []*job) {
		for i := range 50 {
			j := offer("x", err)
			j.id += fmt.Sprint(i)
			jobs = append(jobs, j)
		}
		return jobs
	}
	for _, err := range []error{answer(403), answer(403), answer(500), answer(500), nil} {
		l.finish(SideHub, each(err), now)
		l.tellRefusals()
	}
	want := `level=WARN msg="a cluster refuses objects" cluster=hub count=50 err="answer 403"
level=WARN msg="writes to a cluster fail" cluster=hub err="answer 500"
level=INFO msg="writes to a cluster work again" cluster=hub
level=INFO msg="a cluster refuses no objects any more" cluster=hub`
	if got := strings.TrimSpace(text.String()); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
