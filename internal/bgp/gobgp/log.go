package gobgp

import (
	"context"
	"log/slog"
	"net/netip"
	"reflect"

	gobgplog "github.com/osrg/gobgp/v3/pkg/log"
	"github.com/osrg/gobgp/v3/pkg/packet/bgp"

	bgptypes "lbd.dev/lbd/internal/bgp"
)

// logger hands what the server logs on to slog, and picks out of it what the
// server tells nobody else: its events name neither the interface of a link-local
// peer nor why a session ended. TestServerTells holds the texts that count here.
//
// The server calls it with its locks held, so it only notes. No message ends the
// process: those at Panic and Fatal are bugs of the server that it survives.
type logger struct {
	log  *slog.Logger
	tell func(addr netip.Addr, e event)
}

// event is news of one peer.
type event struct {
	kind     eventKind
	old, new bgptypes.State       // stateChanged
	reason   string               // stateChanged: as the server names it
	notice   *bgp.BGPNotification // stateChanged, noticeSent: if one was the reason
	err      error                // dialFailed, md5Failed, noticeSent: the cause
	asn      uint32               // asnHeard
}

type eventKind uint8

const (
	stateChanged eventKind = iota + 1
	dialFailed
	md5Failed
	noticeSent
	holdExpired
	prefixLimit
	localMismatch
	asnHeard
	updateTaken
)

func (l *logger) Panic(msg string, f gobgplog.Fields) { l.write(slog.LevelError, msg, f) }
func (l *logger) Fatal(msg string, f gobgplog.Fields) { l.write(slog.LevelError, msg, f) }
func (l *logger) Error(msg string, f gobgplog.Fields) { l.write(slog.LevelDebug, msg, f) }
func (l *logger) Warn(msg string, f gobgplog.Fields)  { l.write(slog.LevelDebug, msg, f) }
func (l *logger) Info(msg string, f gobgplog.Fields)  { l.write(slog.LevelDebug, msg, f) }
func (l *logger) Debug(msg string, f gobgplog.Fields) { l.write(slog.LevelDebug, msg, f) }
func (l *logger) SetLevel(gobgplog.LogLevel)          {}

// GetLevel asks for everything: the server says only at this level why it could
// not connect.
func (l *logger) GetLevel() gobgplog.LogLevel { return gobgplog.DebugLevel }

func (l *logger) write(level slog.Level, msg string, f gobgplog.Fields) {
	if e := pick(msg, f); e.kind != 0 {
		if key, ok := f["Key"].(string); ok {
			if addr, err := netip.ParseAddr(key); err == nil {
				l.tell(addr.Unmap(), e)
			}
		}
	}
	if !l.log.Enabled(context.Background(), level) {
		return
	}
	args := make([]any, 0, 2*len(f))
	for k, v := range f {
		args = append(args, k, v)
	}
	l.log.Log(context.Background(), level, "gobgp: "+msg, args...)
}

// pick turns what counts into an event; kind 0 is nothing.
func pick(msg string, f gobgplog.Fields) event {
	switch msg {
	case "state changed":
		e := event{kind: stateChanged}
		old, _ := f["old"].(string)
		now, _ := f["new"].(string)
		e.old, e.new = states[old], states[now]
		e.reason, e.notice = readReason(f["reason"])
		return e
	case "failed to connect":
		err, _ := f["Error"].(error)
		return event{kind: dialFailed, err: err}
	case "failed to set md5":
		err, _ := f["Err"].(error)
		return event{kind: md5Failed, err: err}
	case "sent notification":
		if err, ok := f["Data"].(*bgp.MessageError); ok {
			return event{kind: noticeSent, err: err}
		}
	case "received update": // it is taken from the queue
		return event{kind: updateTaken}
	case "hold timer expired":
		return event{kind: holdExpired}
	case "prefix limit reached":
		if _, warning := f["Pct"]; !warning {
			return event{kind: prefixLimit}
		}
	case "skipped asn negotiation":
		if asn, ok := f["Asn"].(uint32); ok {
			return event{kind: asnHeard, asn: asn}
		}
	case "Mismatched local address":
		return event{kind: localMismatch}
	}
	return event{}
}

var states = map[string]bgptypes.State{
	bgp.BGP_FSM_IDLE.String():        bgptypes.Idle,
	bgp.BGP_FSM_CONNECT.String():     bgptypes.Connect,
	bgp.BGP_FSM_ACTIVE.String():      bgptypes.Active,
	bgp.BGP_FSM_OPENSENT.String():    bgptypes.OpenSent,
	bgp.BGP_FSM_OPENCONFIRM.String(): bgptypes.OpenConfirm,
	bgp.BGP_FSM_ESTABLISHED.String(): bgptypes.Established,
}

// readReason reads the server's own type of a reason: its name, and its
// NOTIFICATION, an exported field of an unexported type.
func readReason(v any) (name string, body *bgp.BGPNotification) {
	defer func() { _ = recover() }() // a surprise in here must not end the process
	s, ok := v.(interface{ String() string })
	r := reflect.ValueOf(v)
	if !ok || r.Kind() != reflect.Pointer || r.IsNil() || r.Elem().Kind() != reflect.Struct {
		return "", nil
	}
	if field := r.Elem().FieldByName("BGPNotification"); field.IsValid() {
		if m, ok := field.Interface().(*bgp.BGPMessage); ok && m != nil {
			body, _ = m.Body.(*bgp.BGPNotification)
		}
	}
	return s.String(), body
}
