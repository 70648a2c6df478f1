package control

import (
	"fmt"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
)

// What the tables say, for whoever shows the same in another form. Foreign text in it has no
// control characters and is on one line.

// Problems are what a user should look at, the first of them first.
func Problems(s v1alpha1.NodeStatus) []string {
	list := problems(s)
	for i := range list {
		list[i] = Line(list[i])
	}
	return list
}

// Condense is the state of a node in a few words.
func Condense(s v1alpha1.NodeStatus) string { return Line(condense(s)) }

// Age is how long before a status something was, such as "3m"; empty for no time.
func Age(s v1alpha1.NodeStatus, at time.Time) string { return age(s, at) }

// Line is foreign text as one line without control characters.
func Line(text string) string { return clean(oneLine(text)) }

// Calm tells whether a VIP is where it belongs, as far as the node knows.
func Calm(vip v1alpha1.VIPStatus) bool { return isCalm(vip) }

// Here says what the node does with a VIP: announced, silent, advertised, bound or no.
func Here(vip v1alpha1.VIPStatus) string { return here(vip) }

// Why is a sentence, without a full stop, for why a VIP is, or is not, on the node self.
func Why(vip v1alpha1.VIPStatus, self string) string { return Line(whyHere(vip, self)) }

// Reasons are sentences about a VIP: why it is, or is not, on the node that answers, and then
// what a person should look at.
func Reasons(e v1alpha1.Explanation) []string {
	out := []string{Line(sentence(e.Reason, e.Node, e.Owner, e.Detail))}
	if e.Duplicate != "" {
		out = append(out, Line(duplicateProblem(e.Owner, e.Duplicate)))
	}
	if e.Ring != "" {
		out = append(out, Line(ringProblem(e.Ring)))
	}
	return out
}

// CandidateWhy says why a node does, or does not, have a VIP.
func CandidateWhy(e v1alpha1.Explanation, c v1alpha1.Candidate) string {
	if e.Mode == modeBGP {
		return Line(advertiserWhy(c))
	}
	return Line(candidateWhy(c, e.Owner))
}

// Reached says whether a node is alive as far as is known: yes, no or late.
func Reached(c v1alpha1.Candidate) string { return reached(c) }

// BackendWhy says why a backend gets no new connections, or gets them all the same.
func BackendWhy(b v1alpha1.BackendStatus) string { return Line(backendWhy(b)) }

// Share is the part of new connections that a backend gets.
func Share(b v1alpha1.BackendStatus) string { return fmt.Sprintf("%d.%d %%", b.Share/10, b.Share%10) }

// About is what an event is about: a VIP, a session, or a node.
func About(e *v1alpha1.Event) string { return Line(about(e)) }

// Change says in words what an event changed.
func Change(e *v1alpha1.Event) string { return Line(change(e)) }

// Cause says why, as far as the node knows.
func Cause(e *v1alpha1.Event) string { return Line(joined(e, e.Reason, e.Detail)) }

// Gap says for how long something was missed: "no owner for 250ms".
func Gap(e *v1alpha1.Event) string { return Line(gapText(e)) }
