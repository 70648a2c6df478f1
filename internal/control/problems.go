package control

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/model"
)

// mismatchNews is how long packets that could not be decrypted are shown: a node
// that still has another key is heard every few seconds.
const mismatchNews = 5 * time.Minute

// Problem is the first of what a user should look at, in words that stay the same
// while only time passes; empty if all is well.
func Problem(s v1alpha1.NodeStatus) string {
	if list := tell(s, false); len(list) > 0 {
		return list[0]
	}
	return ""
}

// problems are what a user should look at first.
func problems(s v1alpha1.NodeStatus) []string { return tell(s, true) }

// tell lists the problems, with the times and counts of now or without.
func tell(s v1alpha1.NodeStatus, now bool) []string {
	ago := func(format string, at time.Time) string {
		if !now {
			return ""
		}
		return fmt.Sprintf(format, s.Time.Sub(at).Round(time.Second))
	}
	var found []string
	if s.Config.Error != "" {
		found = append(found, "the newest configuration is refused, the one before stays in force: "+oneLine(s.Config.Error))
	}
	for _, warning := range s.Config.Warnings {
		found = append(found, "configuration: "+oneLine(warning))
	}
	found = append(found, clusterProblems(s, ago)...)
	if m := s.Machines; m != nil && m.LastError != "" {
		found = append(found, "the management cluster is not read, or not all of it: "+oneLine(m.LastError))
	}
	if s.Gossip.KeyMismatches > 0 && s.Time.Sub(s.Gossip.LastMismatchAt) < mismatchNews {
		from := ""
		if s.Gossip.LastMismatchFrom != "" {
			from = "from " + clean(s.Gossip.LastMismatchFrom) + " "
		}
		count, last := "", ""
		if now {
			count, last = fmt.Sprintf("%d ", s.Gossip.KeyMismatches), ", the last "+from+ago("%s ago", s.Gossip.LastMismatchAt)
		}
		found = append(found, count+"gossip packets could not be decrypted"+last+": compare the key files of the nodes")
	}
	if len(s.Gossip.Absent) > 0 {
		found = append(found, "configured peers that are not members: "+clean(strings.Join(s.Gossip.Absent, ", "))+"; they do not run, are not reached, or have another key")
	}
	if s.Gossip.NameConflicts > 0 && s.Time.Sub(s.Gossip.LastConflictAt) < conflictNews {
		found = append(found, nameConflict(s, ago(", heard %s ago", s.Gossip.LastConflictAt)))
	}
	if s.Gossip.Error != "" {
		found = append(found, "gossip: "+oneLine(s.Gossip.Error))
	}
	for _, driver := range s.Drivers {
		if driver.Error != "" {
			found = append(found, driver.Name+": "+oneLine(driver.Error))
		}
	}
	found = append(found, overdue(s, now)...)
	for _, b := range s.BGP {
		if b.State != established {
			state := clean(b.State)
			if !now { // a session that is down goes through all of them
				state = "not established"
			}
			found = append(found, fmt.Sprintf("BGP session with %s is %s; `lbd status bgp` says why", clean(b.Peer), state))
		}
	}
	return slices.Concat(found, vipProblems(s), clusterWarnings(s))
}

// shownProblems is how many problems with objects of a cluster are shown one by one.
const shownProblems = 3

// clusterProblems tells of the API server and of objects that do not get what they
// ask for.
func clusterProblems(s v1alpha1.NodeStatus, ago func(string, time.Time) string) []string {
	k := s.Kubernetes
	if k == nil {
		return nil
	}
	var found []string
	if !k.Connected {
		stays := "what was read last stays in force"
		if !k.Synced {
			stays = "its objects are not known yet, and what files say is in force"
		}
		words := fmt.Sprintf("not connected to the API server%s, and %s", ago(" for %s", k.Since), stays)
		if k.LastError != "" {
			words += ": " + oneLine(k.LastError)
		}
		found = append(found, words)
	}
	return append(found, ofObjects(k.Problems, k.ProblemCount, "problems")...)
}

// clusterWarnings tells of objects that get what they ask for, and ask for trouble.
func clusterWarnings(s v1alpha1.NodeStatus) []string {
	if s.Kubernetes == nil {
		return nil
	}
	return ofObjects(s.Kubernetes.Warnings, len(s.Kubernetes.Warnings), "warnings")
}

// ofObjects shows the first of a list, and how many more of count there are.
func ofObjects(list []string, count int, what string) (found []string) {
	shown := list[:min(len(list), shownProblems)]
	for _, p := range shown {
		found = append(found, "cluster: "+oneLine(p))
	}
	if more := count - len(shown); more > 0 {
		found = append(found, fmt.Sprintf("cluster: %d more such %s; `lbd status -o json` has them", more, what))
	}
	return found
}

// conflictNews is how long a host with the name of another is shown. It is heard
// with a full exchange that reaches this node, every 10 to 30 s in a small group.
const conflictNews = 90 * time.Second

// nameConflict tells of two hosts with one name, which may be that of any node.
func nameConflict(s v1alpha1.NodeStatus, heard string) string {
	g := s.Gossip
	if g.LastConflictName == s.Node {
		return fmt.Sprintf("another host at %s uses the name of this node, %s%s: give one of them another nodeName",
			g.LastConflictFrom, clean(s.Node), heard)
	}
	member := "of a member"
	for _, m := range s.Members {
		if m.Name == g.LastConflictName {
			member = "of the member at " + m.Address
		}
	}
	return fmt.Sprintf("a host at %s uses the name %s %s%s: give one of them another nodeName",
		g.LastConflictFrom, clean(g.LastConflictName), clean(member), heard)
}

// overdue names the members whose heartbeats do not come.
func overdue(s v1alpha1.NodeStatus, now bool) []string {
	var found []string
	for _, m := range s.Members {
		if m.Late != "" && m.State == "alive" {
			late := ""
			if now {
				late = " for " + m.Late
			}
			found = append(found, fmt.Sprintf("heartbeats of %s are overdue%s: its host or its link is down, or its daemon stands still", clean(m.Name), late))
		}
	}
	return found
}

// vipProblems tells of the VIPs that nobody owns, and of those that are, or are
// not, on this node for a reason that a person should look at, then of those whose open
// connections a move would reset.
func vipProblems(s v1alpha1.NodeStatus) []string {
	found, rings := group{}, group{}
	for _, vip := range s.VIPs {
		if vip.Duplicate != "" && vip.Mode != modeBGP {
			found.add(duplicateProblem(vip.Owner, vip.Duplicate), vip.Address)
		}
		if vip.Ring != "" {
			rings.add(ringProblem(vip.Ring), vip.Address)
		}
		reason, known := model.ParseReason(vip.Reason)
		ownerless := vip.Owner == "" && vip.Mode != modeBGP && s.Settled
		degraded := vip.Standing == model.ReasonDegraded.String()
		if !ownerless && !(known && reason.Look()) && !degraded {
			continue
		}
		what := whyHere(vip, s.Node)
		if rest, said := strings.CutPrefix(what, "nobody owns the VIP; "); said {
			what = rest
		}
		if ownerless {
			what = "nobody is known to own it; " + what
		}
		found.add(what, vip.Address)
	}
	return append(found.lines(), rings.lines()...)
}

// duplicateProblem tells what it means that another host answers, too.
func duplicateProblem(owner, host string) string {
	return fmt.Sprintf("%s answers for it beside %s, and some clients reach that host: remove the address there", clean(host), clean(owner))
}

// ringProblem tells what it means that there is no ring, and why.
func ringProblem(why string) string {
	return "a move resets open connections, or some of them: " + oneLine(why)
}

// group are addresses of which the same is to be said, in the order of the first.
type group struct {
	order []string
	about map[string][]string
}

func (g *group) add(what, address string) {
	if g.about == nil {
		g.about = make(map[string][]string)
	}
	if g.about[what] == nil {
		g.order = append(g.order, what)
	}
	if said := g.about[what]; len(said) == 0 || said[len(said)-1] != address { // by layer 2 and by BGP
		g.about[what] = append(said, address)
	}
}

func (g *group) lines() (out []string) {
	for _, what := range g.order {
		out = append(out, named(g.about[what])+": "+what)
	}
	return out
}

// peerAS names the AS of the peer, as far as it is known.
func peerAS(b v1alpha1.BGPStatus) string {
	if b.PeerASN == 0 {
		return "any other AS"
	}
	return fmt.Sprintf("AS %d", b.PeerASN)
}
