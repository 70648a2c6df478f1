package allocator

import "testing"

// TestMetalLB holds what users of MetalLB know, from its documentation and its own
// tests; where lbd differs on purpose, the line says so.
func TestMetalLB(t *testing.T) {
	for name, script := range map[string]string{
		"basic": `
			pool p 192.0.2.0/31
			svc a
			want a 192.0.2.0
			mark a 192.0.2.0=p
			event a IPAllocated assigned 192.0.2.0 from pool "p"
			svc b
			want b 192.0.2.1
			svc c
			want c -
			event c AllocationFailed Exhausted: no free IPv4 address in pool "p"
			counts p 2/0 0/0`,
		"before there is a pool": `
			svc a
			want a -
			event a AllocationFailed NoPool:
			pool p 192.0.2.0/31
			want a 192.0.2.0`,
		"other classes and types are not touched": `
			pool p 192.0.2.0/31
			svc a class=other status=203.0.113.9
			svc b class=
			svc c type=ClusterIP
			want a 203.0.113.9
			want b -
			wrote 0`,
		"without a class on request": `
			pool p 192.0.2.0/31
			svc a class=
			want a -
			classless on
			want a 192.0.2.0
			svc b class=other
			want b -`,
		"a Service served no more gives back what was marked": `
			pool p 192.0.2.0/31
			classless on
			svc a class=
			want a 192.0.2.0
			classless off
			want a -
			mark a`,
		"a Service served no more keeps what somebody else gave": `
			pool p 192.0.2.0/31
			classless on
			svc a class=
			classless off
			svc a status=203.0.113.9 lbd.dev/allocated-from=192.0.2.0=p
			want a 203.0.113.9
			mark a`,
		"deletion frees, after a quarantine": `
			pool p 192.0.2.0/32
			svc a
			svc b
			want b -
			rm a
			want b -
			event b AllocationFailed Exhausted:
			tick 59
			want b -
			tick 1
			want b 192.0.2.0`,
		"a quarantine outlives the process": `
			pool p 192.0.2.0/32
			svc a
			rm a
			tick 10
			restart
			svc b
			want b -
			restart
			tick 49
			want b -
			tick 1
			want b 192.0.2.0`,
		"a quarantine that outlives the process is not for who asks by name": `
			pool p 192.0.2.0/31
			svc a
			rm a
			restart
			svc b
			want b 192.0.2.1
			svc c lbd.dev/loadBalancerIPs=192.0.2.0
			want c 192.0.2.0
			restart
			want c 192.0.2.0`,
		"a change of type frees": `
			pool p 192.0.2.0/32
			svc a
			svc b
			svc a type=ClusterIP status=
			event a ClearAssignment gives up 192.0.2.0: the Service is not one of this controller
			tick 60
			want b 192.0.2.0
			want a -`,
		"the same name, another Service": `
			pool p 192.0.2.0/31
			svc a
			svc a uid=second
			want a 192.0.2.1`,
		"the oldest first at the start": `
			new young
			new old age=10
			new older age=20
			pool p 192.0.2.0/31
			want older 192.0.2.0
			want old 192.0.2.1
			want young -`,
		"loadBalancerIPs": `
			pool p 192.0.2.0/29
			svc a ips=192.0.2.5
			want a 192.0.2.5
			svc b ips=192.0.2.5
			want b -
			event b AllocationFailed InUse: 192.0.2.5 is in use by default/a
			svc c ips=198.51.100.1
			event c AllocationFailed NotInPool: 198.51.100.1 is in no pool
			svc d ips=here
			event d AllocationFailed BadAnnotation: annotation lbd.dev/loadBalancerIPs: "here" is not an IP address
			svc d ips=192.0.2.6,
			event d AllocationFailed BadAnnotation: annotation lbd.dev/loadBalancerIPs: "" is not an IP address
			svc d ips=192.0.2.6
			want d 192.0.2.6
			rm a
			want b 192.0.2.5 # at once: it asks for the address itself`,
		"spec.loadBalancerIP": `
			pool p 192.0.2.0/29
			svc a lbip=192.0.2.4
			want a 192.0.2.4
			svc b lbip=x
			event b AllocationFailed BadAnnotation: spec.loadBalancerIP: "x" is not an IP address
			svc b lbip=192.0.2.5 ips=192.0.2.5
			want b 192.0.2.5
			svc c lbip=192.0.2.6 ips=192.0.2.7
			event c AllocationFailed BadAnnotation: annotation lbd.dev/loadBalancerIPs asks for 192.0.2.7 and spec.loadBalancerIP for 192.0.2.6`,
		"synonyms, and their precedence": `
			pool p 192.0.2.0/29
			pool q 198.51.100.0/29 manual
			svc a metallb.io/loadBalancerIPs=192.0.2.5
			want a 192.0.2.5
			svc b metallb.universe.tf/loadBalancerIPs=192.0.2.6
			want b 192.0.2.6
			svc c metallb.universe.tf/address-pool=p metallb.io/address-pool=q
			want c 198.51.100.0
			svc d metallb.io/loadBalancerIPs=192.0.2.5 ips=192.0.2.4
			want d 192.0.2.4
			svc e metallb.io/allow-shared-ip=k ports=80
			svc f metallb.universe.tf/allow-shared-ip=k ports=81
			want e 192.0.2.0
			want f 192.0.2.0
			svc g metallb.io/addresses-per-family=2 # of lbd alone
			want g 192.0.2.1`,
		"a running Service asks for another address": `
			pool p 192.0.2.0/29
			svc a
			svc a ips=192.0.2.3
			want a 192.0.2.3
			event a ClearAssignment gives up 192.0.2.0: the Service asks for something else
			svc b
			want b 192.0.2.1 # 192.0.2.0 rests
			svc a ips=192.0.2.1
			want a 192.0.2.3 # not as MetalLB, which takes the old one away first
			event a AllocationFailed InUse:`,
		"address-pool": `
			pool p 192.0.2.0/29
			pool q 198.51.100.0/29 manual
			svc a pool=q
			want a 198.51.100.0
			svc b pool=none
			event b AllocationFailed UnknownPool: pool "none" does not exist
			svc b pool=p,,q
			event b AllocationFailed BadAnnotation: annotation lbd.dev/address-pool: "p,,q" has no name
			svc a pool=p
			want a 192.0.2.0
			svc c ips=192.0.2.4 pool=q
			event c AllocationFailed WrongPool: 192.0.2.4 is in pool "p", but pool "q" is asked for`,
		"autoAssign": `
			pool p 192.0.2.0/29 manual
			svc a
			event a AllocationFailed NoPool:
			svc a ips=192.0.2.2
			want a 192.0.2.2`,
		"avoidBuggyIPs": `
			pool p 192.0.2.254-192.0.3.1 avoid
			svc a
			svc b
			svc c
			want a 192.0.2.254
			want b 192.0.3.1
			want c -
			counts p 2/0 0/0`,
		"sharing": `
			pool p 192.0.2.0/29
			svc a share=k ports=80
			svc b share=k ports=80u
			svc c share=k ports=80
			svc d share=l ports=81
			want a 192.0.2.0
			want b 192.0.2.0
			want c 192.0.2.1
			want d 192.0.2.2
			svc e share=k ports=82 ips=192.0.2.2
			event e AllocationFailed SharingKey: 192.0.2.2 is shared by default/d under the key "l", which is not "k"
			svc f ports=82 ips=192.0.2.2
			event f AllocationFailed InUse:
			svc g share=k ports=80 ips=192.0.2.0
			event g AllocationFailed PortInUse: port TCP/80 of 192.0.2.0 is in use by default/a
			svc h share=k ports=83 local=x ips=192.0.2.0
			event h AllocationFailed SharingBackend:
			svc i share=m local=x ports=1
			svc j share=m local=x ports=2
			svc k share=m local=y ports=3
			want i 192.0.2.3
			want j 192.0.2.3
			want k 192.0.2.4
			counts p 5/3 0/0`,
		"the second leaves when sharing ends, the first stays": `
			pool p 192.0.2.0/29
			svc a share=k ports=80
			svc b share=k ports=81
			clear
			svc b share=
			want a 192.0.2.0
			want b 192.0.2.1
			event b ClearAssignment gives up 192.0.2.0: 192.0.2.0 is in use by default/a
			event b IPAllocated 192.0.2.1
			wrote 1
			svc b share=k
			want b 192.0.2.1 # it stays where it is now`,
		"sharing ends for one family only": `
			pool p 192.0.2.0/30 2001:db8::/126
			svc a families=46 policy=RequireDualStack share=k ports=80
			svc b ips=192.0.2.0 share=k ports=81
			svc a share=
			want a 192.0.2.1 2001:db8::
			want b 192.0.2.0`,
		"an address moves from one to the other": `
			pool p 192.0.2.0/29
			svc a
			clear
			new a ips=192.0.2.1
			new b ips=192.0.2.0
			step
			want a 192.0.2.1
			want b 192.0.2.0
			wrote 2
			new a ips=192.0.2.0
			new b ips=192.0.2.1
			step
			want a 192.0.2.1 # both would have to go first
			want b 192.0.2.0`,
		"an address moves to an older Service, at once but never in two statuses": `
			strict
			pool p 192.0.2.0/29
			svc a
			clear
			new a ips=192.0.2.1
			new b ips=192.0.2.0 age=9
			step
			want a 192.0.2.1
			want b 192.0.2.0
			wrote 2`,
		"an address that is lost and won in one decision is not written": `
			strict
			pool p 192.0.2.0/32
			pool q 198.51.100.0/32 manual
			svc b share=k ports=80 ips=192.0.2.0
			svc a share=k ports=81
			want a 192.0.2.0
			clear
			new b local=x
			new a pool=q
			step
			want a 198.51.100.0
			want b 192.0.2.0
			wrote 1`,
		"who gets nothing keeps what it has, under its new key": `
			strict
			pool p 192.0.2.0/31
			svc a ports=80
			svc b share=k ports=81 ips=192.0.2.0
			want b -
			svc a share=k families=46 policy=RequireDualStack # which it does not get
			want a 192.0.2.0
			want b 192.0.2.0
			svc a share= ips=x
			want a -
			event a ClearAssignment gives up 192.0.2.0: 192.0.2.0 is in use by default/b
			want b 192.0.2.0`,
		"a traffic policy that forbids sharing, and back": `
			pool p 192.0.2.0/32
			svc a share=k ports=80
			svc b share=k ports=81
			svc b local=x
			want b -
			event b ClearAssignment gives up 192.0.2.0: 192.0.2.0 is shared by default/a: sharing needs externalTrafficPolicy
			event b AllocationFailed Exhausted:
			event a IPAllocated
			event b IPAllocated
			wrote 3
			quiet # there is no conflict with what it has just left
			svc b local=
			want b 192.0.2.0`,
		"the key of one frees the other": `
			pool p 192.0.2.0/32
			svc a ports=80
			svc b ports=81 share=k
			want b -
			svc a share=k
			want b 192.0.2.0`,
		"dual stack": `
			pool v4 192.0.2.0/31
			pool v6 2001:db8::/127
			svc a families=46 policy=RequireDualStack
			svc b families=64 policy=PreferDualStack
			svc c families=46 policy=PreferDualStack
			svc d families=46
			want a 192.0.2.0 2001:db8::
			mark a 192.0.2.0=v4,2001:db8::=v6
			want b 2001:db8::1 192.0.2.1
			want c -
			want d -`,
		"prefer takes one family and adds the other later": `
			pool v4 192.0.2.0/31
			svc a families=46 policy=PreferDualStack
			svc b families=46 policy=RequireDualStack
			want a 192.0.2.0
			want b -
			event b AllocationFailed FamilyMissing: no IPv6 range in pool "v4"
			pool v6 2001:db8::/127
			want a 192.0.2.0 2001:db8::
			want b 192.0.2.1 2001:db8::1`,
		"prefer takes what is freed later": `
			pool p 192.0.2.0/31 2001:db8::/128
			svc a families=6
			svc b families=46 policy=PreferDualStack
			want b 192.0.2.0
			rm a
			tick 60
			want b 192.0.2.0 2001:db8::`,
		"a running Service changes families": `
			pool p 192.0.2.0/31 2001:db8::/127
			svc a
			svc a families=46 policy=PreferDualStack
			want a 192.0.2.0 2001:db8::
			svc a families=46 policy=RequireDualStack
			svc a families=4 policy=SingleStack
			want a 192.0.2.0
			event a ClearAssignment gives up 2001:db8::`,
		"require where one family is missing keeps what it has": `
			pool p 192.0.2.0/31
			svc a families=46 policy=PreferDualStack
			svc a policy=RequireDualStack
			want a 192.0.2.0 # not as MetalLB, which takes it away
			event a AllocationFailed FamilyMissing:`,
		"single stack Services do not ask for the other family": `
			pool p 192.0.2.0/31 2001:db8::/127
			svc a families=6
			svc b families=4 policy=RequireDualStack
			want a 2001:db8::
			event b AllocationFailed BadRequest: RequireDualStack needs both families`,
		"dual stack by address": `
			pool p 192.0.2.0/29 2001:db8::/125
			svc a families=46 policy=RequireDualStack ips=192.0.2.3,2001:db8::3
			want a 192.0.2.3 2001:db8::3
			svc b ips=2001:db8::4
			event b AllocationFailed FamilyMismatch:`,
		"several addresses of a family": `
			pool p 192.0.2.0/29 2001:db8::/125
			svc a families=46 policy=RequireDualStack count=2
			want a 192.0.2.0 192.0.2.1 2001:db8:: 2001:db8::1
			svc a count=x
			want a 192.0.2.0 192.0.2.1 2001:db8:: 2001:db8::1
			event a AllocationFailed BadAnnotation: annotation lbd.dev/addresses-per-family: "x" is not a number from 1 to 64
			svc a count=
			want a 192.0.2.0 2001:db8::`,
		"priority and namespaces": `
			pool low 192.0.2.20/32 ns=team priority=20
			pool high 192.0.2.10/32 ns=team priority=10
			pool none 192.0.2.30/32 ns=team
			pool open 192.0.2.40/32
			svc team/a
			svc team/b
			svc team/c
			svc team/d
			svc other/e
			want team/a 192.0.2.10
			want team/b 192.0.2.20
			want team/c 192.0.2.30
			want team/d 192.0.2.40
			want other/e -`,
		"namespace labels, live": `
			pool p 192.0.2.0/31 nslabel=team:a
			svc x/a
			event x/a AllocationFailed NoPool:
			ns x team=a
			want x/a 192.0.2.0
			svc y/b ips=192.0.2.1
			event y/b AllocationFailed NotSelected: pool "p" is for other Services
			ns x team=b
			want x/a 192.0.2.0 # what runs keeps running`,
		"service labels, live": `
			pool p 192.0.2.0/31 svclabel=tier:gold
			svc a
			want a -
			svc a label=tier:gold
			want a 192.0.2.0`,
	} {
		t.Run(name, func(t *testing.T) { newCluster(t).play(script) })
	}
}

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
