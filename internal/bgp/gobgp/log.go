package gobgp

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"syscall"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	bgptypes "lbd.dev/lbd/internal/bgp"
)

// logger hands what the server logs on, and picks out of it what the server tells
// nobody else: its events name neither the interface of a link-local peer nor why a
// session ended, there are none of connections that it has opened itself, and those of
// paths wait in a queue without bound. The tests of this package hold the texts that
// count here.
//
// The server calls it with its locks held, so it only notes.
type logger struct {
	log  *slog.Logger
	tell func(addr netip.Addr, e event)
	peer netip.Addr  // whom all is about; invalid: each record says so
	with []slog.Attr // what is told of it
}

// event is news of one peer.
type event struct {
	kind     eventKind
	old, new bgptypes.State // stateChanged
	reason   string         // stateChanged: as the server names it
	// outgoing is a connection that the server has opened; it is no session of the
	// server before the OPEN of the peer has come.
	outgoing bool                 // stateChanged
	notice   *bgp.BGPNotification // noticeSent, noticeHeard
	err      error                // dialFailed, md5Failed: the cause
	asn      uint32               // asnHeard
	update   *update              // updateRead
}

// update is what an UPDATE says.
type update struct {
	nlri, withdrawn []bgp.PathNLRI
	attributes      []bgp.PathAttributeInterface
}

type eventKind uint8

const (
	stateChanged eventKind = iota + 1
	dialFailed
	md5Failed
	noticeSent
	noticeHeard
	localMismatch
	asnHeard
	updateRead
	peerDown
)

// Enabled asks for everything: the server says only at the lowest level why it could not connect.
func (l *logger) Enabled(context.Context, slog.Level) bool { return true }

// WithGroup implements slog.Handler; the server has no groups.
func (l *logger) WithGroup(string) slog.Handler { return l }

func (l *logger) WithAttrs(attrs []slog.Attr) slog.Handler {
	of := *l
	of.with = append(of.with[:len(of.with):len(of.with)], attrs...)
	for _, a := range attrs {
		if addr, is := addressed(a); is {
			of.peer = addr
		}
	}
	return &of
}

// addressed reads whom a record is about.
func addressed(a slog.Attr) (netip.Addr, bool) {
	if a.Key != "Key" || a.Value.Kind() != slog.KindString {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(a.Value.String())
	return addr.Unmap(), err == nil
}

func (l *logger) Handle(ctx context.Context, r slog.Record) error {
	if read := readers[r.Message]; read != nil {
		addr, fields := l.peer, make(map[string]slog.Value, r.NumAttrs())
		r.Attrs(func(a slog.Attr) bool {
			if to, is := addressed(a); is {
				addr = to
			}
			fields[a.Key] = a.Value
			return true
		})
		if addr.IsValid() {
			for _, e := range read(fields) {
				l.tell(addr, e)
			}
		}
	}
	if !l.log.Enabled(ctx, slog.LevelDebug) {
		return nil
	}
	attrs := append([]slog.Attr{}, l.with...)
	r.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs, a)
		return true
	})
	l.log.LogAttrs(ctx, slog.LevelDebug, "gobgp: "+r.Message, attrs...)
	return nil
}

// readers turn what counts into events.
var readers = map[string]func(map[string]slog.Value) []event{
	"state changed": func(f map[string]slog.Value) []event {
		return []event{{kind: stateChanged, old: stateOf(f["old"]), new: stateOf(f["new"]), reason: f["reason"].String()}}
	},
	"Accepted a new dynamic neighbor": func(map[string]slog.Value) []event { // which begins in this state
		return []event{{kind: stateChanged, new: bgptypes.Active}}
	},
	"outgoing connection established": func(map[string]slog.Value) []event {
		return []event{{kind: stateChanged, old: bgptypes.Active, new: bgptypes.OpenSent, outgoing: true}}
	},
	"outgoing connection IO error": func(f map[string]slog.Value) []event {
		return []event{{kind: stateChanged, old: bgptypes.OpenSent, new: bgptypes.Idle, outgoing: true, reason: f["reason"].String()}}
	},
	"failed to connect": func(f map[string]slog.Value) []event {
		return []event{{kind: dialFailed, err: errorOf(f["Error"].String())}}
	},
	"failed to set md5": func(f map[string]slog.Value) []event {
		return []event{{kind: md5Failed, err: errors.New(f["Err"].String())}}
	},
	"sent notification":     func(f map[string]slog.Value) []event { return readSent(f) },
	"received notification": func(f map[string]slog.Value) []event { return []event{{kind: noticeHeard, notice: noticeOf(f)}} },
	"skipped asn negotiation": func(f map[string]slog.Value) []event {
		if f["Asn"].Kind() != slog.KindUint64 {
			return nil
		}
		return []event{{kind: asnHeard, asn: uint32(f["Asn"].Uint64())}}
	},
	"Mismatched local address": func(map[string]slog.Value) []event { return []event{{kind: localMismatch}} },
	"Peer Down":                func(map[string]slog.Value) []event { return []event{{kind: peerDown}} },
	"received update": func(f map[string]slog.Value) []event {
		u := &update{}
		u.nlri, _ = f["nlri"].Any().([]bgp.PathNLRI)
		u.withdrawn, _ = f["withdrawals"].Any().([]bgp.PathNLRI)
		u.attributes, _ = f["path_attributes"].Any().([]bgp.PathAttributeInterface)
		return []event{{kind: updateRead, update: u}}
	},
}

// readSent reads what this node has told. On a connection that the server has opened and
// that is no session yet, it ends that.
func readSent(f map[string]slog.Value) []event {
	out := []event{{kind: noticeSent, notice: noticeOf(f)}}
	if stateOf(f["State"]) == bgptypes.Active {
		out = append(out, event{kind: stateChanged, old: bgptypes.OpenSent, new: bgptypes.Idle, outgoing: true, reason: "invalid-msg"})
	}
	return out
}

// noticeOf is a NOTIFICATION as far as the server tells it. It takes the text of a shutdown out
// of the data.
func noticeOf(f map[string]slog.Value) *bgp.BGPNotification {
	n := &bgp.BGPNotification{}
	if f["Code"].Kind() == slog.KindInt64 && f["Subcode"].Kind() == slog.KindInt64 {
		n.ErrorCode, n.ErrorSubcode = uint8(f["Code"].Int64()), uint8(f["Subcode"].Int64())
	}
	n.Data, _ = f["Data"].Any().([]byte)
	if words := f["Communicated-Reason"]; words.Kind() == slog.KindString && words.String() != "" {
		n.Data = append([]byte{byte(len(words.String()))}, words.String()...)
	}
	return n
}

func stateOf(v slog.Value) bgptypes.State { return states[v.String()] }

var states = map[string]bgptypes.State{
	bgp.BGP_FSM_IDLE.String():        bgptypes.Idle,
	bgp.BGP_FSM_CONNECT.String():     bgptypes.Connect,
	bgp.BGP_FSM_ACTIVE.String():      bgptypes.Active,
	bgp.BGP_FSM_OPENSENT.String():    bgptypes.OpenSent,
	bgp.BGP_FSM_OPENCONFIRM.String(): bgptypes.OpenConfirm,
	bgp.BGP_FSM_ESTABLISHED.String(): bgptypes.Established,
}

// errorOf is the error of a connection, of which the server tells only the text.
func errorOf(text string) error {
	for _, err := range []error{
		syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EADDRNOTAVAIL,
		syscall.EPERM, syscall.EACCES, syscall.ETIMEDOUT, os.ErrDeadlineExceeded,
	} {
		if strings.HasSuffix(text, err.Error()) {
			return err
		}
	}
	return errors.New(text)
}
