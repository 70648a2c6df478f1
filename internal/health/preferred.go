package health

import (
	"context"
	"errors"
	"time"
)

const (
	// share is how much of the time of a check is for the preferred page: a quarter. The
	// rest is for the required one, if need be.
	share = 4
	// overdueFor is how long a request for the preferred page is left open. It is longer
	// than kube-apiserver waits for etcd, 2 s.
	overdueFor = 3 * time.Second
)

// degraded is the error of a service that passes what is required of it, but not what is
// preferred.
type degraded struct{ why string }

func (d degraded) Error() string { return d.why }

// preferred is the page that a service should pass as well as the required one. If it
// does the required one is not asked for: it is the lesser of the two.
//
// A request that is not answered soon is left open, and counts as a failure for as long as
// it is: kube-apiserver asks etcd once a second at most for /livez, whoever wants to know,
// and while that one request hangs it gives all others its last result, which was good.
type preferred struct {
	url string
	// open is the request that has not been answered yet; nil if there is none.
	open *request
}

// request is one that is on its way.
type request struct {
	done   chan outcome // one
	cancel context.CancelFunc
}

func newPreferred(scheme, host string, port int32, path, required string) *preferred {
	if path == "" || path == required {
		return nil
	}
	return &preferred{url: checkURL(scheme, host, port, path)}
}

// probeBoth asks for the preferred page and, if that one does not pass in time, for the
// required one.
func (p *httpProber) probeBoth(ctx context.Context) error {
	o, answered := p.prefer(ctx)
	switch {
	case answered && o.why == "":
		return nil
	case answered && o.silent:
		return p.failure(&o) // who does not answer for one page has none
	case !answered:
		o.why = "no answer in time"
	}
	if err := p.require(ctx); err != nil {
		return err
	}
	return degraded{p.preferred.url + ": " + o.why}
}

// prefer asks for the preferred page, or waits on for the answer to an open request.
func (p *httpProber) prefer(ctx context.Context) (o outcome, answered bool) {
	f := p.preferred
	if f.open != nil {
		select {
		case o := <-f.open.done:
			p.end(o) // its answer is as old as the pause between two checks may be long
		default:
		}
	}
	if f.open == nil {
		f.open = p.begin()
	}
	left := time.Duration(0)
	if end, ok := ctx.Deadline(); ok {
		left = time.Until(end)
	}
	timer := time.NewTimer(left / share)
	defer timer.Stop()
	select {
	case o = <-f.open.done:
	case <-timer.C:
		select { // if it was this process that was late
		case o = <-f.open.done:
		default:
			return outcome{}, false
		}
	case <-ctx.Done():
		return outcome{}, false
	}
	p.end(o)
	return o, true
}

func (p *httpProber) begin() *request {
	ctx, cancel := context.WithTimeout(context.Background(), overdueFor)
	r := &request{done: make(chan outcome, 1), cancel: cancel}
	l := p.take()
	go func() { r.done <- p.get(ctx, l, p.preferred.url) }()
	return r
}

// end closes the request, whose outcome this is.
func (p *httpProber) end(o outcome) {
	p.preferred.open.cancel()
	p.preferred.open = nil
	switch {
	case o.line == nil:
	case p.kept == nil:
		p.kept = o.line
	default:
		o.line.close()
	}
}

// drop gives the open request up.
func (f *preferred) drop() {
	if f.open == nil {
		return
	}
	f.open.cancel()
	if o := <-f.open.done; o.line != nil {
		o.line.close()
	}
	f.open = nil
}

// isDegraded tells whether the service passes what is required of it all the same.
func isDegraded(err error) bool {
	var d degraded
	return errors.As(err, &d)
}
