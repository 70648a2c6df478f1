package gobgp

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	bgptypes "lbd.dev/lbd/internal/bgp"
)

func text(err error) string {
	if err == nil {
		return "unknown error"
	}
	return err.Error()
}

// dialWords tells why a connection was not made, and what to look at.
func dialWords(err error, c *bgptypes.Peer) string {
	to := fmt.Sprintf("%s port %d", c.Address, cmp.Or(c.Port, defaultPort))
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("connection refused by %s: does the router speak BGP there, and is this node's address one of its neighbors?", to)
	case errors.Is(err, syscall.ECONNRESET):
		return fmt.Sprintf("connection reset by %s: is this node's address one of the router's neighbors?", to)
	case errors.Is(err, syscall.EHOSTUNREACH):
		return fmt.Sprintf("no route to %s, or nobody has that address", to)
	case errors.Is(err, syscall.ENETUNREACH):
		return fmt.Sprintf("no route to %s", to)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Sprintf("this node does not have the source address %s", c.Source)
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		return fmt.Sprintf("not permitted to connect to %s: does a firewall of this node refuse it?", to)
	case isTimeout(err):
		return fmt.Sprintf("no answer from %s: does the router listen there and allow this node's address? %s", to, silenceWords(c))
	}
	return fmt.Sprintf("cannot connect to %s: %s", to, text(err))
}

// isTimeout tells whether nothing at all was heard of the peer.
func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, syscall.ETIMEDOUT) || errors.As(err, &timeout) && timeout.Timeout()
}

// silenceWords lists the settings that make a router drop packets silently.
func silenceWords(c *bgptypes.Peer) string {
	var out []string
	if c.Password != "" {
		out = append(out, "A wrong TCP MD5 password looks the same")
	} else {
		out = append(out, "A TCP MD5 password that the router wants looks the same")
	}
	switch {
	case c.MinTTL > 0:
		out = append(out, fmt.Sprintf("so does a router that sends with a TTL below %d", c.MinTTL))
	case c.External() && !c.Multihop:
		out = append(out, "so does a router that is not on a connected subnet (multihop) or that wants TTL 255 (TTL security)")
	}
	return strings.Join(out, "; ") + "."
}

func holdWords(c *bgptypes.Peer) string {
	return fmt.Sprintf("hold timer expired: nothing was heard from %s", c.Address)
}

func limitWords(c *bgptypes.Peer) string {
	return fmt.Sprintf("closed by this node: the peer sent more than %d prefixes of one family (maxPrefixes); next try in %v", c.MaxPrefixes, overLimit)
}

// sentWords tells why this node ended a session, or refused what the peer sent. It returns "" if
// the peer has said something that the server does not tell: it takes a NOTIFICATION in place of
// the OPEN, or of what follows it, for a message at the wrong time.
func sentWords(n *bgp.BGPNotification, c *bgptypes.Peer) string {
	name := noticeName(n.ErrorCode, n.ErrorSubcode)
	switch n.ErrorCode {
	case bgp.BGP_ERROR_FSM_ERROR:
		return ""
	case bgp.BGP_ERROR_HOLD_TIMER_EXPIRED:
		return holdWords(c)
	case bgp.BGP_ERROR_CEASE:
		if n.ErrorSubcode == bgp.BGP_ERROR_SUB_MAXIMUM_NUMBER_OF_PREFIXES_REACHED {
			return limitWords(c)
		}
		return "closed by this node: " + name
	case bgp.BGP_ERROR_OPEN_MESSAGE_ERROR:
		switch n.ErrorSubcode {
		case bgp.BGP_ERROR_SUB_BAD_PEER_AS:
			return wrongASWords(c)
		case bgp.BGP_ERROR_SUB_BAD_BGP_IDENTIFIER:
			return "the peer has the same BGP identifier (router ID) as this node, or none"
		case bgp.BGP_ERROR_SUB_UNACCEPTABLE_HOLD_TIME:
			return "the peer wants a hold time of 1 or 2 s, which RFC 4271 forbids"
		}
	}
	return "this node refused a message of the peer: " + name
}

func wrongASWords(c *bgptypes.Peer) string {
	return fmt.Sprintf("the peer has another AS than the configured %d", c.PeerASN)
}

// isClosed tells whether the peer just closed the connection while the session
// was opened.
func isClosed(e event) bool {
	return e.reason == "read-failed" && (e.old == bgptypes.OpenSent || e.old == bgptypes.OpenConfirm)
}

// endWords tells why a session ended, or never was; said is what the server said
// before. It returns "" if only the peer knows.
func endWords(e event, said string, c *bgptypes.Peer) string {
	opening := e.old == bgptypes.OpenSent || e.old == bgptypes.OpenConfirm
	reason, _, _ := strings.Cut(e.reason, " ")
	switch reason {
	case "hold-timer-expired":
		if opening {
			words := "hold timer expired while the session was opened: the peer did not answer"
			if c.External() && !c.Multihop && c.MinTTL == 0 {
				words += "; does it want packets with TTL 255 (TTL security)?"
			}
			return words
		}
		return holdWords(c)
	case "invalid-msg", "bad-peer-as":
		if opening {
			return said // if there is nothing the peer sent a NOTIFICATION that the server has dropped
		}
		return cmp.Or(said, "the peer sent a message that this node does not understand")
	case "read-failed", "write-failed", "graceful-restart":
		if opening {
			return "the peer closed the connection while the session was opened: is this node's address one of its neighbors, " +
				"and is the session not shut down there?"
		}
		return cmp.Or(said, "the connection was lost: the peer closed or reset it")
	}
	return cmp.Or(said, "the session ended: "+e.reason)
}

// receivedWords tells what a NOTIFICATION of the peer means.
func receivedWords(n *bgp.BGPNotification, c *bgptypes.Peer) string {
	switch n.ErrorCode {
	case bgp.BGP_ERROR_OPEN_MESSAGE_ERROR:
		switch n.ErrorSubcode {
		case bgp.BGP_ERROR_SUB_BAD_PEER_AS:
			return fmt.Sprintf("the peer expects another AS of this node than the configured %d", c.LocalASN)
		case bgp.BGP_ERROR_SUB_BAD_BGP_IDENTIFIER:
			return "the peer refuses the BGP identifier (router ID) of this node: is it that of another router, or of the peer?"
		case bgp.BGP_ERROR_SUB_UNACCEPTABLE_HOLD_TIME:
			return fmt.Sprintf("the peer refuses a hold time of %v", c.HoldTime)
		case bgp.BGP_ERROR_SUB_UNSUPPORTED_CAPABILITY:
			return "the peer misses a capability: do both sides have the same address families?"
		}
	case bgp.BGP_ERROR_HOLD_TIMER_EXPIRED:
		return "the peer's hold timer expired: it heard nothing from this node"
	case bgp.BGP_ERROR_CEASE:
		return ceaseWords(n)
	}
	return "the peer closed the session: " + noticeName(n.ErrorCode, n.ErrorSubcode)
}

// bfdDown is the subcode of RFC 9384, which the server does not know.
const bfdDown = 10

// ceaseWords tells what the subcodes of RFC 4486 mean.
func ceaseWords(n *bgp.BGPNotification) string {
	switch n.ErrorSubcode {
	case bgp.BGP_ERROR_SUB_MAXIMUM_NUMBER_OF_PREFIXES_REACHED:
		return "the peer closed the session: this node advertises more prefixes than the peer allows"
	case bgp.BGP_ERROR_SUB_ADMINISTRATIVE_SHUTDOWN:
		return "the session was shut down at the peer" + communication(n.Data)
	case bgp.BGP_ERROR_SUB_ADMINISTRATIVE_RESET:
		return "the session was reset at the peer" + communication(n.Data)
	case bgp.BGP_ERROR_SUB_PEER_DECONFIGURED:
		return "this node was removed from the configuration of the peer"
	case bgp.BGP_ERROR_SUB_CONNECTION_REJECTED:
		return "the peer rejects connections from this node"
	case bgp.BGP_ERROR_SUB_OTHER_CONFIGURATION_CHANGE:
		return "the configuration of the peer was changed"
	case bgp.BGP_ERROR_SUB_CONNECTION_COLLISION_RESOLUTION:
		return "both sides connected at once; the peer kept the other connection"
	case bgp.BGP_ERROR_SUB_OUT_OF_RESOURCES:
		return "the peer is out of resources"
	case bgp.BGP_ERROR_SUB_HARD_RESET:
		return "the peer made a hard reset"
	case bfdDown:
		return "the peer's BFD session with this node went down"
	}
	return "the peer closed the session: " + noticeName(n.ErrorCode, n.ErrorSubcode)
}

// communication is the text that came with a shutdown (RFC 9003): a length and
// UTF-8. It is quoted, for it is somebody else's.
func communication(data []byte) string {
	if len(data) < 2 {
		return ""
	}
	b := data[1:min(1+int(data[0]), len(data))]
	if len(b) == 0 || !utf8.Valid(b) {
		return ""
	}
	return fmt.Sprintf(", saying %q", b)
}

func noticeName(code, subcode uint8) string {
	return bgp.NewNotificationErrorCode(code, subcode).String()
}
