package allocator

import "testing"

// TestPools holds what happens when pools change while Services run.
func TestPools(t *testing.T) {
	for name, script := range map[string]string{
		"grow": `
			pool p 192.0.2.0/32
			svc a
			svc b
			pool p 192.0.2.0/31
			want b 192.0.2.1
			counts p 2/0 0/0
			cond p Accepted:true:Accepted`,
		"shrink: what runs stays, and is told": `
			pool p 192.0.2.0/31
			svc a
			svc b
			clear
			pool p 192.0.2.0/32
			want b 192.0.2.1
			event b AddressOutsidePools 192.0.2.1 is in no pool; the Service keeps it
			event p PoolProblem 192.0.2.1 (default/b)
			cond p Accepted:true:Accepted InUseOutside:true:AddressesInUse
			counts p 1/0 0/0
			quiet
			restart
			want b 192.0.2.1
			mark b 192.0.2.1=p
			wrote 0
			cond p Accepted:true:Accepted InUseOutside:true:AddressesInUse
			clear
			pool p 192.0.2.0/31
			cond p Accepted:true:Accepted
			quiet`,
		"a stray moves when the Service asks for a pool": `
			pool p 192.0.2.0/32
			svc a
			rmpool p
			pool q 198.51.100.0/32
			want a 192.0.2.0
			svc a pool=q
			want a 198.51.100.0`,
		"renamed": `
			pool p 192.0.2.0/32
			svc a
			rmpool p
			pool q 192.0.2.0/31
			want a 192.0.2.0
			mark a 192.0.2.0=q`,
		"removed: not as MetalLB, which takes the address away": `
			pool p 192.0.2.0/31
			svc a
			rmpool p
			want a 192.0.2.0
			event a AddressOutsidePools 192.0.2.0 is in no pool
			restart
			want a 192.0.2.0
			svc b
			want b -`,
		"overlap: the older pool counts": `
			pool p 192.0.2.0/31
			pool q 192.0.2.1-192.0.2.9
			cond q Accepted:false:Overlap
			event q PoolProblem IPAddressPool "q": spec.addresses[0]: "192.0.2.1-192.0.2.9" overlaps pool "p"
			svc a pool=q
			event a AllocationFailed UnknownPool: pool "q" breaks a rule and is not used
			rmpool p
			want a 192.0.2.1
			cond q Accepted:true:Accepted
			event q PoolAccepted the pool is in use`,
		"invalid: known, not used": `
			pool p 192.0.2.0/31 invalid=spec.x:wrong
			pool q 198.51.100.0/31
			cond p Accepted:false:Invalid
			event p PoolProblem spec.x:wrong
			svc a
			want a 198.51.100.0
			svc b pool=p
			event b AllocationFailed UnknownPool: pool "p" breaks a rule`,
		"addresses of nodes": `
			pool p 192.0.2.0/30
			node 192.0.2.0 192.0.2.2
			cond p Accepted:true:Accepted HoldsNodeAddress:true:NodeAddress
			event p PoolProblem contain the addresses of nodes 192.0.2.0, 192.0.2.2
			svc a
			want a 192.0.2.1
			svc b ips=192.0.2.2
			event b AllocationFailed NodeAddress: 192.0.2.2 is the address of a node
			node 192.0.2.1
			want a 192.0.2.1
			event a AddressOutsidePools 192.0.2.1 is the address of a node
			want b 192.0.2.2`,
		"a family is lost: the other is not torn away": `
			pool p 192.0.2.0/31 2001:db8::/127
			svc a families=46 policy=RequireDualStack
			pool p 192.0.2.0/31
			want a 192.0.2.0 2001:db8::
			event a AddressOutsidePools 2001:db8:: is in no pool`,
		"counts end quarantines": `
			pool p 192.0.2.0/30
			pool q 198.51.100.0/30
			svc a
			counts p 1/3 0/0
			told 3 # each once, and p again
			svc a label=x:y
			told 0
			rm a
			counts p 0/3 0/0
			tick 60
			counts p 0/4 0/0`,
	} {
		t.Run(name, func(t *testing.T) { newCluster(t).play(script) })
	}
}

// TestStatus holds what is done about a status that lbd did not write, or that
// somebody else has changed.
func TestStatus(t *testing.T) {
	for name, script := range map[string]string{
		"a status from before, in a pool, is kept": `
			pool p 192.0.2.0/29
			new a status=192.0.2.5
			new b
			restart
			want a 192.0.2.5
			mark a 192.0.2.5=p
			want b 192.0.2.0
			wrote 2`,
		"also when the pool comes later, and before older Services": `
			svc old age=9
			svc a status=192.0.2.0
			want a 192.0.2.0
			pool p 192.0.2.0/31
			want a 192.0.2.0
			want old 192.0.2.1`,
		"a status of somebody else stays until there is a better one": `
			svc a status=203.0.113.9
			want a 203.0.113.9
			pool p 192.0.2.0/31
			want a 192.0.2.0`,
		"a host name of somebody else too": `
			svc a status=lb.example
			want a lb.example
			pool p 192.0.2.0/31
			want a 192.0.2.0`,
		"the same address twice: the older Service keeps it": `
			pool p 192.0.2.0/31
			new a status=192.0.2.0 age=1
			new b status=192.0.2.0 age=2
			restart
			want b 192.0.2.0
			want a 192.0.2.1
			event a AssignmentConflict 192.0.2.0 cannot stay: 192.0.2.0 is in use by default/b`,
		"the same address twice, and no other": `
			pool p 192.0.2.0/32
			new a status=192.0.2.0 age=1
			new b status=192.0.2.0 age=2
			restart
			want b 192.0.2.0
			want a -
			event a AssignmentConflict 192.0.2.0 cannot stay
			event a AllocationFailed Exhausted
			wrote 2
			restart
			event a AllocationFailed Exhausted
			quiet`,
		"a Service that comes with the address of another": `
			pool p 192.0.2.0/31
			svc a
			clear
			svc b status=192.0.2.0
			want a 192.0.2.0
			want b 192.0.2.1
			event b AssignmentConflict 192.0.2.0 cannot stay`,
		"shared before, shared after": `
			pool p 192.0.2.0/31
			svc a share=k ports=80
			svc b share=k ports=81
			clear
			restart
			quiet
			svc c share=k ports=81
			want c 192.0.2.1`,
		"changed by somebody else": `
			pool p 192.0.2.0/31
			svc a
			clear
			svc a status=203.0.113.1
			want a 192.0.2.0
			event a StatusRepaired it was [203.0.113.1] and is [192.0.2.0] again
			wrote 1
			svc a status=203.0.113.1
			want a 203.0.113.1
			wrote 0
			tick 1
			want a 192.0.2.0
			svc a status=
			tick 1
			want a -
			tick 1
			want a 192.0.2.0
			svc a lbd.dev/allocated-from=
			mark a
			tick 4
			mark a 192.0.2.0=p
			now 601
			clear
			svc a status=
			want a 192.0.2.0
			wrote 1
			svc a status=
			tick 1 # after 10 minutes it begins anew
			want a 192.0.2.0`,
		"the order does not count": `
			pool p 192.0.2.0/31 2001:db8::/127
			svc a families=46 policy=RequireDualStack
			clear
			svc a status=2001:DB8:0::,192.0.2.0
			quiet`,
		"what was asked for and written is not asked for twice": `
			pool p 192.0.2.0/29
			svc a ips=192.0.2.3
			clear
			svc a label=x:y
			ns default a=b
			pool q 198.51.100.0/29
			restart
			quiet`,
		"failures are told again after they were over": `
			pool p 192.0.2.0/31
			svc a
			svc b ips=192.0.2.0
			event b AllocationFailed InUse
			svc b ips=
			want b 192.0.2.1
			svc b ips=192.0.2.0
			event b AllocationFailed InUse`,
		"failures are told once": `
			pool p 192.0.2.0/32
			svc a
			svc b
			svc c
			clear
			svc b label=x:y
			ns default a=b
			quiet
			rm a
			quiet # though its words have changed: one is in quarantine now`,
	} {
		t.Run(name, func(t *testing.T) { newCluster(t).play(script) })
	}
}

// TestFamiliesNotKnownYet: a Service whose families are not written yet, as while an API server is
// upgraded, keeps the addresses that it has although it cannot have what it asks for.
func TestFamiliesNotKnownYet(t *testing.T) {
	newCluster(t).play(`
		pool p 192.0.2.0/24
		svc a
		want a 192.0.2.0
		svc a families= ips=198.51.100.1
		want a 192.0.2.0
		svc a families=4 ips=
		want a 192.0.2.0`)
}
