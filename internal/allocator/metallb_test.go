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
		"who asks lbd for something by another class hears why nothing comes": `
			pool p 192.0.2.0/31
			svc a class=other pool=p
			event a ClassNotServed spec.loadBalancerClass is "other", and only "lbd.dev/lbd" is served
			svc b class= ips=192.0.2.1
			event b ClassNotServed spec.loadBalancerClass is not set, and only "lbd.dev/lbd" is served
			clear
			svc a class=other pool=q
			svc c class=other type=ClusterIP pool=p
			quiet
			want a -`,
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
