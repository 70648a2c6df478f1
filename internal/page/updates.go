package page

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"lbd.dev/lbd/internal/wake"
)

const (
	// maxReaders is how many pages are told of news at the same time.
	maxReaders = 16
	// pollEvery is how often the source is asked whether there is an event.
	pollEvery = 250 * time.Millisecond
	// lookEvery is how often it is asked for what is no event, such as the state of a check.
	lookEvery = 5 * time.Second
	// keepAlive is how often a reader gets a line if there is no news, so that both ends notice
	// when the other one is gone.
	keepAlive = 15 * time.Second
	// writeTimeout is how long a reader may take for a line.
	writeTimeout = 5 * time.Second
	// longest is how long one answer lasts. A browser asks again, and who does not read gives
	// his place up.
	longest = 10 * time.Minute
)

// updates tells a reader of each new snapshot, as server-sent events: its ID, and in words the
// newest change. The page then gets itself again.
func (p *Page) updates(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Content-Type", "text/event-stream")
		return
	}
	news := p.join()
	if news == nil {
		w.Header().Set("Retry-After", "15")
		http.Error(w, fmt.Sprintf("%d pages are told of news already, and no more are", maxReaders), http.StatusServiceUnavailable)
		return
	}
	defer p.leave(news)
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	send := func(text string) bool {
		_ = out.SetWriteDeadline(time.Now().Add(writeTimeout)) // a writer that knows none has no slow reader
		_, err := w.Write([]byte(text))
		return err == nil && out.Flush() == nil
	}
	end, still := time.NewTimer(longest), time.NewTicker(keepAlive)
	defer end.Stop()
	defer still.Stop()
	last := ""
	ok := send("retry: 2000\n\n")
	for ok {
		if s := p.known(time.Hour); s != nil && s.ID != last {
			last = s.ID
			if ok = send("event: state\nid: " + s.ID + "\ndata: " + s.words + "\n\n"); !ok {
				return
			}
		}
		select {
		case <-news:
		case <-still.C:
			ok = send(":\n\n")
		case <-end.C:
			return
		case <-r.Context().Done():
			return
		case <-p.closed:
			return
		}
	}
}

// join returns where a reader hears of news, and begins to watch for the first one; nil if
// there is no room, or the end is near.
func (p *Page) join() chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.closed:
		return nil
	default:
	}
	if len(p.readers) == maxReaders {
		return nil
	}
	news := make(chan struct{}, 1)
	p.readers[news] = true
	if p.stop == nil {
		var ctx context.Context
		ctx, p.stop = context.WithCancel(context.Background())
		go p.watch(ctx)
	}
	return news
}

// leave forgets a reader, and ends the watch after the last one.
func (p *Page) leave(news chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.readers, news)
	if len(p.readers) == 0 {
		p.stop()
		p.stop = nil
	}
}

// watch takes a snapshot when something has happened, and from time to time, and tells the
// readers. While nobody reads, nobody watches.
func (p *Page) watch(ctx context.Context) {
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	last := ""
	// Whoever comes and goes asks for no more than pages do.
	s, _ := p.look(ctx, fresh)
	for {
		if s != nil && s.ID != last {
			last = s.ID
			p.tell()
		}
		select {
		case <-ctx.Done():
			return
		case <-p.closed:
			return
		case <-poll.C:
		}
		s = p.renewed(ctx)
	}
}

// renewed is the newest snapshot, after another one was taken if it was time for that; nil if
// the source does not answer.
func (p *Page) renewed(ctx context.Context) *taken {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	s := p.known(lookEvery)
	if s != nil {
		// Newer than the newest there is not, so nothing is listed.
		e, err := p.source.Events(ctx, "", 0, s.Events.Newest)
		if err == nil && e.Newest == s.Events.Newest && e.Started.Equal(s.Events.Started) {
			return s
		}
	}
	s, err := p.look(ctx, fresh)
	if err != nil {
		return nil
	}
	return s
}

func (p *Page) tell() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for news := range p.readers {
		wake.Up(news)
	}
}
