package v1alpha1

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// validPeer returns a defaulted object that breaks no rule.
func validPeer() *BGPPeer {
	p := &BGPPeer{
		TypeMeta: TypeMeta{APIVersion, KindBGPPeer},
		Metadata: ObjectMeta{Name: "tor1"},
		Spec:     BGPPeerSpec{MyASN: 64512, PeerASN: 64513, PeerAddress: "10.0.0.1"},
	}
	p.Default()
	return p
}

// validProfile returns a defaulted object that breaks no rule.
func validProfile() *BFDProfile {
	p := &BFDProfile{TypeMeta: TypeMeta{APIVersion, KindBFDProfile}, Metadata: ObjectMeta{Name: "fast"}}
	p.Default()
	return p
}

// validCommunity returns an object that breaks no rule.
func validCommunity() *Community {
	c := &Community{
		TypeMeta: TypeMeta{APIVersion, KindCommunity},
		Metadata: ObjectMeta{Name: "site"},
		Spec:     CommunitySpec{[]CommunityAlias{{"customers", "64512:200"}, {"VPN_only", "large:4294967294:0:1"}}},
	}
	c.Default()
	return c
}

// same compares errors, one a line, with what is wanted.
func same(t *testing.T, errs []FieldError, want string) {
	t.Helper()
	if got := strings.TrimSuffix(texts(errs), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func seconds(n int) *Duration { return &Duration{time.Duration(n) * time.Second} }

func TestBGPDefaults(t *testing.T) {
	p, f, c := validPeer(), validProfile(), validCommunity()
	same(t, p.Validate(), "")
	same(t, f.Validate(), "")
	same(t, c.Validate(), "")
	s := p.Spec
	if s.PeerPort != 179 || s.HoldTime.Duration != 9*time.Second || s.KeepaliveTime.Duration != 3*time.Second || s.ConnectTime.Duration != time.Second ||
		s.GracefulShutdownDelay.Duration != 500*time.Millisecond || !s.Has(FamilyIPv4) || !s.Has(FamilyIPv6) || s.MaxPrefixes != 10000 {
		t.Errorf("peer defaults: %+v", s)
	}
	if g := f.Spec; g.ReceiveInterval != 300 || g.TransmitInterval != 300 || g.DetectMultiplier != 3 || g.MinimumTTL != 254 {
		t.Errorf("profile defaults: %+v", g)
	}
	for hold, keepalive := range map[int]time.Duration{0: 0, 3: time.Second, 10: 3 * time.Second, 90: 30 * time.Second, 65535: 21845 * time.Second} {
		p := &BGPPeer{TypeMeta: p.TypeMeta, Metadata: p.Metadata, Spec: BGPPeerSpec{MyASN: 1, PeerASN: 1, PeerAddress: "fd00::1", HoldTime: seconds(hold)}}
		p.Default()
		if got := p.Spec.KeepaliveTime.Duration; got != keepalive {
			t.Errorf("hold time %d s: keepalive %v, want %v", hold, got, keepalive)
		}
		same(t, p.Validate(), "")
	}
	passive := &BGPPeer{Spec: BGPPeerSpec{Passive: true}}
	passive.Default()
	if passive.Spec.ConnectTime.Duration != 0 {
		t.Error("a passive peer connects")
	}
}

func TestBGPPeerRules(t *testing.T) {
	const hold = " must be 0s, which means for ever, or whole seconds from 3s to 65535s (RFC 4271 section 4.2)"
	const asn = "is required: from 1 to 4294967294"
	for name, tt := range map[string]struct {
		change func(*BGPPeerSpec)
		want   string
	}{
		"all at once": {func(s *BGPPeerSpec) {
			*s = BGPPeerSpec{HoldTime: seconds(9), KeepaliveTime: seconds(3), GracefulShutdownDelay: seconds(1)}
		},
			"spec.myASN: " + asn + "\nspec.peerASN: " + asn + ", or dynamicASN in its place\nspec.peerAddress: is required\nspec.peerPort: 0 must be from 1 to 65535\n" +
				"spec.connectTime: 0s must be whole seconds from 1s to 65535s\nspec.maxPrefixes: 0 must be from 1 to 10000000"},
		"AS_TRANS":   {func(s *BGPPeerSpec) { s.MyASN = 23456 }, `spec.myASN: 23456 is AS_TRANS, which is reserved (RFC 6793)`},
		"last of 16": {func(s *BGPPeerSpec) { s.PeerASN = 65535 }, `spec.peerASN: 65535 is reserved (RFC 7300)`},
		"last of 32": {func(s *BGPPeerSpec) { s.PeerASN = 4294967295 }, `spec.peerASN: 4294967295 is reserved (RFC 7300)`},
		"AS twice":   {func(s *BGPPeerSpec) { s.DynamicASN = DynamicExternal }, `spec.dynamicASN: "external" and peerASN exclude each other`},
		"AS twice, same": {func(s *BGPPeerSpec) { s.DynamicASN, s.PeerASN = DynamicInternal, s.MyASN },
			`spec.dynamicASN: "internal" and peerASN exclude each other`},
		"dynamic":       {func(s *BGPPeerSpec) { s.DynamicASN, s.PeerASN = "any", 0 }, `spec.dynamicASN: "any" must be internal or external`},
		"address":       {func(s *BGPPeerSpec) { s.PeerAddress = "tor1" }, `spec.peerAddress: "tor1" is not an IP address`},
		"any":           {func(s *BGPPeerSpec) { s.PeerAddress = "::" }, `spec.peerAddress: "::" is the unspecified address`},
		"loopback":      {func(s *BGPPeerSpec) { s.PeerAddress = "127.0.0.1" }, `spec.peerAddress: "127.0.0.1" is a loopback address`},
		"multicast":     {func(s *BGPPeerSpec) { s.PeerAddress = "ff02::1" }, `spec.peerAddress: "ff02::1" is a multicast address`},
		"broadcast":     {func(s *BGPPeerSpec) { s.PeerAddress = "255.255.255.255" }, `spec.peerAddress: "255.255.255.255" is the broadcast address`},
		"mapped":        {func(s *BGPPeerSpec) { s.PeerAddress = "::ffff:10.0.0.1" }, `spec.peerAddress: "::ffff:10.0.0.1" is an IPv4 address in IPv6 form; write 10.0.0.1`},
		"zone":          {func(s *BGPPeerSpec) { s.PeerAddress = "fe80::1%eth0" }, `spec.peerAddress: "fe80::1%eth0" has a zone; write fe80::1 and name the interface in spec.interface`},
		"no interface":  {func(s *BGPPeerSpec) { s.PeerAddress = "fe80::1" }, `spec.interface: is required for a link-local peerAddress`},
		"interface":     {func(s *BGPPeerSpec) { s.Interface = "eth0" }, `spec.interface: "eth0" is only for a link-local peerAddress; remove it, or choose sourceAddress`},
		"bad interface": {func(s *BGPPeerSpec) { s.PeerAddress, s.Interface = "fe80::1", "eth 0" }, `spec.interface: "eth 0" is not the name of an interface: 1 to 15 bytes without /, : and blanks`},
		"unnumbered": {func(s *BGPPeerSpec) { s.PeerAddress, s.Interface = "", "eth0" },
			`spec.peerAddress: is required: a session by the interface alone (unnumbered) is not supported by this version; give the link-local address of the peer`},
		"port":           {func(s *BGPPeerSpec) { s.PeerPort = 65536 }, `spec.peerPort: 65536 must be from 1 to 65535`},
		"source family":  {func(s *BGPPeerSpec) { s.SourceAddress = "fd00::1" }, `spec.sourceAddress: "fd00::1" is of another family than peerAddress`},
		"source is peer": {func(s *BGPPeerSpec) { s.SourceAddress = "10.0.0.1" }, `spec.sourceAddress: "10.0.0.1" is also peerAddress; a node has no session with itself`},
		"source link":    {func(s *BGPPeerSpec) { s.PeerAddress, s.SourceAddress = "fd00::1", "fe80::2" }, `spec.sourceAddress: "fe80::2" is link-local, which does not reach peerAddress`},
		"source zone":    {func(s *BGPPeerSpec) { s.SourceAddress = "fe80::2%eth0" }, `spec.sourceAddress: "fe80::2%eth0" has a zone; write fe80::2 and name the interface in spec.interface`},
		"source any":     {func(s *BGPPeerSpec) { s.SourceAddress = "0.0.0.0" }, `spec.sourceAddress: "0.0.0.0" is the unspecified address`},
		"router ID":      {func(s *BGPPeerSpec) { s.RouterID = "0.0.0.0" }, `spec.routerID: "0.0.0.0" must be four bytes in dotted form, such as 10.0.0.11, and not 0.0.0.0`},
		"router ID v6":   {func(s *BGPPeerSpec) { s.RouterID = "fd00::1" }, `spec.routerID: "fd00::1" must be four bytes in dotted form, such as 10.0.0.11, and not 0.0.0.0`},

		"hold 1":       {func(s *BGPPeerSpec) { s.HoldTime = seconds(1) }, `spec.holdTime: 1s` + hold},
		"hold 2":       {func(s *BGPPeerSpec) { s.HoldTime = seconds(2) }, `spec.holdTime: 2s` + hold},
		"hold 65536":   {func(s *BGPPeerSpec) { s.HoldTime = seconds(65536) }, `spec.holdTime: 18h12m16s` + hold},
		"hold part":    {func(s *BGPPeerSpec) { s.HoldTime = &Duration{3500 * time.Millisecond} }, `spec.holdTime: 3.5s` + hold},
		"hold minus":   {func(s *BGPPeerSpec) { s.HoldTime = seconds(-9) }, `spec.holdTime: -9s` + hold},
		"keep is hold": {func(s *BGPPeerSpec) { s.KeepaliveTime = seconds(9) }, `spec.keepaliveTime: 9s must be shorter than holdTime, 9s`},
		"keep zero":    {func(s *BGPPeerSpec) { s.KeepaliveTime = seconds(0) }, `spec.keepaliveTime: 0s must be whole seconds, at least 1s (RFC 4271 section 4.4)`},
		"keep part":    {func(s *BGPPeerSpec) { s.KeepaliveTime = &Duration{1500 * time.Millisecond} }, `spec.keepaliveTime: 1.5s must be whole seconds, at least 1s (RFC 4271 section 4.4)`},
		"keep no hold": {func(s *BGPPeerSpec) { s.HoldTime = seconds(0) }, `spec.keepaliveTime: 3s must be left out: holdTime 0s means that no KEEPALIVE is sent`},
		"connect":      {func(s *BGPPeerSpec) { s.ConnectTime = Duration{500 * time.Millisecond} }, `spec.connectTime: 500ms must be whole seconds from 1s to 65535s`},
		"passive":      {func(s *BGPPeerSpec) { s.Passive = true }, `spec.connectTime: 1s is not for a passive peer, which is never connected to; remove it`},
		"selector": {func(s *BGPPeerSpec) {
			s.NodeSelectors = []LabelSelector{{}, {MatchLabels: map[string]string{"zone": "a/b"}}}
		}, `spec.nodeSelectors[1].matchLabels[zone]: "a/b" must be letters, digits, -, _ and ., at most 63, beginning and ending with a letter or digit`},

		"long password": {func(s *BGPPeerSpec) { s.Password = strings.Repeat("x", 81) }, `spec.password: has 81 bytes; TCP MD5 takes at most 80`},
		"two lines":     {func(s *BGPPeerSpec) { s.Password = "secret\n" }, `spec.password: must be one line of text`},
		"two passwords": {func(s *BGPPeerSpec) { s.Password, s.PasswordFile = "secret", "/p" }, `spec.passwordFile: "/p" and password exclude each other`},
		"password path": {func(s *BGPPeerSpec) { s.PasswordFile = "p" }, `spec.passwordFile: "p" must be an absolute path`},
		"link password": {func(s *BGPPeerSpec) { s.PeerAddress, s.Interface, s.Password = "fe80::1", "eth0", "secret" },
			`spec.password: is not for a link-local peerAddress: TCP MD5 needs an address that names one peer`},
		"link password file": {func(s *BGPPeerSpec) { s.PeerAddress, s.Interface, s.PasswordFile = "fe80::1", "eth0", "/p" },
			`spec.passwordFile: "/p" is not for a link-local peerAddress: TCP MD5 needs an address that names one peer`},
		"secret and password": {func(s *BGPPeerSpec) { s.Password, s.PasswordSecret = "secret", &SecretReference{Name: "tor1"} },
			`spec.passwordSecret: "tor1" excludes password and passwordFile`},
		"secret and file": {func(s *BGPPeerSpec) { s.PasswordFile, s.PasswordSecret = "/p", &SecretReference{Name: "tor1"} },
			`spec.passwordSecret: "tor1" excludes password and passwordFile`},
		"secret without name": {func(s *BGPPeerSpec) { s.PasswordSecret = &SecretReference{} }, `spec.passwordSecret.name: is required`},
		"secret name":         {func(s *BGPPeerSpec) { s.PasswordSecret = &SecretReference{Name: "Tor_1"} }, `spec.passwordSecret.name: "Tor_1" ` + ruleSubdomain},
		"secret namespace": {func(s *BGPPeerSpec) { s.PasswordSecret = &SecretReference{Name: "tor1", Namespace: "lbd.system"} },
			`spec.passwordSecret.namespace: "lbd.system" ` + ruleDNSLabel},
		"link secret": {func(s *BGPPeerSpec) {
			s.PeerAddress, s.Interface, s.PasswordSecret = "fe80::1", "eth0", &SecretReference{Name: "tor1"}
		}, `spec.passwordSecret: "tor1" is not for a link-local peerAddress: TCP MD5 needs an address that names one peer`},
		"profile": {func(s *BGPPeerSpec) { s.BFDProfile = "Fast" }, `spec.bfdProfile: "Fast" ` + ruleSubdomain},

		"multihop, GTSM":     {func(s *BGPPeerSpec) { s.EBGPMultiHop, s.TTLSecurity = true, true }, `spec.ebgpMultiHop: true and ttlSecurity exclude each other; minimumTTL is for a peer several hops away`},
		"multihop, distance": {func(s *BGPPeerSpec) { s.EBGPMultiHop, s.MinimumTTL = true, new(int32(250)) }, `spec.ebgpMultiHop: true and minimumTTL exclude each other; minimumTTL alone allows several hops`},
		"multihop, iBGP":     {func(s *BGPPeerSpec) { s.EBGPMultiHop, s.PeerASN = true, s.MyASN }, `spec.ebgpMultiHop: true is for eBGP; an iBGP peer (peerASN is myASN) may always be several hops away`},
		"multihop, internal": {func(s *BGPPeerSpec) { s.EBGPMultiHop, s.DynamicASN, s.PeerASN = true, DynamicInternal, 0 },
			`spec.ebgpMultiHop: true is for eBGP; an iBGP peer (dynamicASN is internal) may always be several hops away`},
		"GTSM twice":   {func(s *BGPPeerSpec) { s.TTLSecurity, s.MinimumTTL = true, new(int32(255)) }, `spec.minimumTTL: 255 and ttlSecurity, which means 255, exclude each other`},
		"TTL 0":        {func(s *BGPPeerSpec) { s.MinimumTTL = new(int32) }, `spec.minimumTTL: 0 must be from 1 to 255`},
		"TTL 256":      {func(s *BGPPeerSpec) { s.MinimumTTL = new(int32(256)) }, `spec.minimumTTL: 256 must be from 1 to 255`},
		"delay":        {func(s *BGPPeerSpec) { s.GracefulShutdownDelay = seconds(301) }, `spec.gracefulShutdownDelay: 5m1s must be from 0s to 5m`},
		"family":       {func(s *BGPPeerSpec) { s.Families = []AddressFamily{"ipv5"} }, `spec.families[0]: "ipv5" must be ipv4 or ipv6`},
		"family twice": {func(s *BGPPeerSpec) { s.Families = []AddressFamily{"ipv4", "ipv4"} }, `spec.families[1]: "ipv4" is listed twice`},
		"prefixes":     {func(s *BGPPeerSpec) { s.MaxPrefixes = -1 }, `spec.maxPrefixes: -1 must be from 1 to 10000000`},

		"good: iBGP":              {func(s *BGPPeerSpec) { s.PeerASN = s.MyASN }, ""},
		"good: 32 bits":           {func(s *BGPPeerSpec) { s.MyASN, s.PeerASN = 4294967294, 4200000000 }, ""},
		"good: link-local":        {func(s *BGPPeerSpec) { s.PeerAddress, s.Interface, s.SourceAddress = "fe80::1", "eth0", "fe80::2" }, ""},
		"good: v4 link":           {func(s *BGPPeerSpec) { s.PeerAddress = "169.254.0.1" }, ""},
		"good: hold 3":            {func(s *BGPPeerSpec) { s.HoldTime, s.KeepaliveTime = seconds(3), seconds(2) }, ""},
		"good: no hold":           {func(s *BGPPeerSpec) { s.HoldTime, s.KeepaliveTime = seconds(0), seconds(0) }, ""},
		"good: passive":           {func(s *BGPPeerSpec) { s.Passive, s.ConnectTime = true, Duration{} }, ""},
		"good: password":          {func(s *BGPPeerSpec) { s.Password = strings.Repeat("x", 80) }, ""},
		"good: v4 link password":  {func(s *BGPPeerSpec) { s.PeerAddress, s.PasswordFile = "169.254.0.1", "/p" }, ""},
		"good: no delay":          {func(s *BGPPeerSpec) { s.GracefulShutdownDelay = seconds(0) }, ""},
		"good: GTSM":              {func(s *BGPPeerSpec) { s.MinimumTTL = new(int32(1)) }, ""},
		"good: iBGP GTSM":         {func(s *BGPPeerSpec) { s.TTLSecurity, s.PeerASN = true, s.MyASN }, ""},
		"good: internal":          {func(s *BGPPeerSpec) { s.DynamicASN, s.PeerASN, s.TTLSecurity = DynamicInternal, 0, true }, ""},
		"good: external":          {func(s *BGPPeerSpec) { s.DynamicASN, s.PeerASN, s.BFDProfile = DynamicExternal, 0, "fast" }, ""},
		"good: external, far":     {func(s *BGPPeerSpec) { s.DynamicASN, s.PeerASN, s.EBGPMultiHop = DynamicExternal, 0, true }, ""},
		"good: secret":            {func(s *BGPPeerSpec) { s.PasswordSecret = &SecretReference{Name: "tor1.example"} }, ""},
		"good: secret, namespace": {func(s *BGPPeerSpec) { s.PasswordSecret = &SecretReference{Name: "tor1", Namespace: "lbd-system"} }, ""},
		"good: router ID":         {func(s *BGPPeerSpec) { s.RouterID = "0.0.0.1" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := validPeer()
			tt.change(&p.Spec)
			record(t, "", p)
			errs := p.Validate()
			same(t, errs, tt.want)
			if strings.Contains(texts(errs), "secret") {
				t.Error("the error shows the password")
			}
		})
	}
	p := validPeer()
	p.Kind, p.Metadata.Name = "Peer", "Tor 1"
	record(t, "kind and name", p)
	same(t, p.Validate(), `kind: "Peer" must be BGPPeer`+"\n"+`metadata.name: "Tor 1" `+ruleSubdomain)
}

func TestBFDProfileRules(t *testing.T) {
	const needs = "needs authType: keyed-sha1 or meticulous-keyed-sha1"
	const tooShort = "must be from 50 to 60000: shorter intervals, which earlier versions took, end sessions on a node that is busy"
	for name, tt := range map[string]struct {
		change func(*BFDProfileSpec)
		want   string
	}{
		"all at once": {func(s *BFDProfileSpec) {
			*s = BFDProfileSpec{ReceiveInterval: 49, TransmitInterval: 60001, DetectMultiplier: 1, MinimumTTL: 255}
		},
			"spec.receiveInterval: 49 " + tooShort + "\nspec.transmitInterval: 60001 must be from 50 to 60000\n" +
				"spec.detectMultiplier: 1 must be from 2 to 255\nspec.minimumTtl: 255 must be from 1 to 254"},
		"of an earlier version": {func(s *BFDProfileSpec) { s.ReceiveInterval, s.TransmitInterval = 20, 10 },
			"spec.receiveInterval: 20 " + tooShort + "\nspec.transmitInterval: 10 " + tooShort},
		"negative":   {func(s *BFDProfileSpec) { s.TransmitInterval = -1 }, "spec.transmitInterval: -1 " + tooShort},
		"multiplier": {func(s *BFDProfileSpec) { s.DetectMultiplier = 256 }, `spec.detectMultiplier: 256 must be from 2 to 255`},
		"auth type":  {func(s *BFDProfileSpec) { s.AuthType, s.AuthKeyFile = "keyed-md5", "/k" }, `spec.authType: "keyed-md5" must be keyed-sha1 or meticulous-keyed-sha1`},
		"no key":     {func(s *BFDProfileSpec) { s.AuthType = BFDKeyedSHA1 }, `spec.authKeyFile: is required with authType`},
		"key alone":  {func(s *BFDProfileSpec) { s.AuthKeyFile = "/k" }, `spec.authKeyFile: "/k" ` + needs},
		"ID alone":   {func(s *BFDProfileSpec) { s.AuthKeyID = 1 }, `spec.authKeyID: 1 ` + needs},
		"ID":         {func(s *BFDProfileSpec) { s.AuthType, s.AuthKeyFile, s.AuthKeyID = BFDKeyedSHA1, "/k", 256 }, `spec.authKeyID: 256 must be from 0 to 255`},
		"key path":   {func(s *BFDProfileSpec) { s.AuthType, s.AuthKeyFile = BFDKeyedSHA1, "k" }, `spec.authKeyFile: "k" must be an absolute path`},

		"good: bounds": {func(s *BFDProfileSpec) {
			*s = BFDProfileSpec{ReceiveInterval: 50, TransmitInterval: 60000, DetectMultiplier: 255, MinimumTTL: 1}
		}, ""},
		"good: auth": {func(s *BFDProfileSpec) { s.AuthType, s.AuthKeyFile, s.AuthKeyID = BFDMeticulousSHA1, "/k", 255 }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := validProfile()
			tt.change(&p.Spec)
			record(t, "", p)
			same(t, p.Validate(), tt.want)
		})
	}
}

func TestCommunityRules(t *testing.T) {
	const syntax = " must be 1 to 63 letters, digits, -, _ and ., beginning and ending with a letter or digit"
	c := validCommunity()
	c.Spec.Communities = nil
	record(t, "none", c)
	same(t, c.Validate(), `spec.communities: must have at least one entry`)
	for entry, want := range map[CommunityAlias]string{
		{"", "1:1"}:                      `.name: is required`,
		{"a", ""}:                        `.value: is required`,
		{"a b", "1:1"}:                   `.name: "a b"` + syntax,
		{"1:2", "1:1"}:                   `.name: "1:2"` + syntax,
		{"no-export", "1:1"}:             `.name: "no-export" is the name of a well-known community, which needs no entry`,
		{"customers", "1:1"}:             `.name: "customers" is also the name of spec.communities[0]`,
		{"a", "no-export"}:               `.value: "no-export" ` + errCommunityValue.Error(),
		{"a", "65536:1"}:                 `.value: "65536:1" ` + errCommunityValue.Error(),
		{"a", "65535:0"}:                 `.value: "65535:0" is GRACEFUL_SHUTDOWN, which lbd sends by itself in a drain`,
		{"NO_ADVERTISE", "65535:1"}:      "",
		{"a", "large:1:2:3"}:             "",
		{"a", "large:4294967295:1:0"}:    `.value: "large:4294967295:1:0" ` + errReservedLarge.Error(),
		{"a", "large:1:2"}:               `.value: "large:1:2" ` + errCommunityValue.Error(),
		{"1", "0:65535"}:                 "",
		{strings.Repeat("a", 64), "0:1"}: `.name: "` + strings.Repeat("a", 64) + `"` + syntax,
	} {
		c := validCommunity()
		c.Spec.Communities = append(c.Spec.Communities, entry)
		record(t, entry.Name+" "+entry.Value, c)
		if want != "" {
			want = "spec.communities[2]" + want
		}
		same(t, c.Validate(), want)
	}
}

func TestParseCommunity(t *testing.T) {
	for text, want := range map[string]CommunityValue{
		"64512:100": {Standard: 64512<<16 | 100}, "0:0": {}, "65535:65535": {Standard: 0xffffffff},
		"no-export": {Standard: 0xffffff01}, "no-advertise": {Standard: 0xffffff02},
		"no-export-subconfed": {Standard: 0xffffff03}, "local-as": {Standard: 0xffffff03}, "no-peer": {Standard: 0xffffff04},
		"large:1:2:3": {IsLarge: true, Large: [3]uint32{1, 2, 3}}, "large:4294967294:4294967295:0": {IsLarge: true, Large: [3]uint32{4294967294, 4294967295, 0}},
	} {
		recordCommunity(t, text)
		if got, err := ParseCommunity(text); err != nil || got != want {
			t.Errorf("%q: %+v %v, want %+v", text, got, err, want)
		}
	}
	for text, want := range map[string]error{
		"": errCommunityValue, ":": errCommunityValue, "1:": errCommunityValue, "1:2:3": errCommunityValue, "65536:0": errCommunityValue,
		"1:65536": errCommunityValue, "-1:1": errCommunityValue, "01:1": errCommunityValue, "+1:1": errCommunityValue, "1 :1": errCommunityValue,
		"large:1:2": errCommunityValue, "large:1:2:4294967296": errCommunityValue, "large:1:2:3:4": errCommunityValue, "Large:1:2:3": errCommunityValue,
		"0x1:1": errCommunityValue, "a b": errCommunityValue,
		"large:4294967295:1:0": errReservedLarge, "large:4294967295:1": errCommunityValue,
		"graceful-shutdown": errGracefulByLBD, "65535:0": errGracefulByLBD,
		"customers": ErrCommunityName, "123": ErrCommunityName, "NO_EXPORT": ErrCommunityName,
	} {
		recordCommunity(t, text)
		if got, err := ParseCommunity(text); !errors.Is(err, want) {
			t.Errorf("%q: %+v %v, want %v", text, got, err, want)
		}
	}
	for text, ok := range map[string]bool{"1:2:3": true, "4294967294:4294967295:4294967295": true, "4294967295:0:0": false, "large:1:2:3": false, "1:2": false, "a:b:c": false, "4294967296:0:0": false, "": false} {
		v := validVIP()
		v.Spec.Advertise = &Advertise{BGP: &BGPAdvertise{LargeCommunities: []string{text}}}
		record(t, "large/"+text, v)
		if got, err := ParseLargeCommunity(text); (err == nil) != ok || !got.IsLarge {
			t.Errorf("%q: %+v %v", text, got, err)
		}
	}
	for _, name := range WellKnownCommunities() {
		if _, err := ParseCommunity(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// recordCommunity records a text wherever a community may be.
func recordCommunity(t *testing.T, text string) {
	t.Helper()
	v, c, a := validVIP(), validCommunity(), validAdvertisement()
	v.Spec.Advertise = &Advertise{BGP: &BGPAdvertise{Communities: []string{text}}}
	c.Spec.Communities[0].Value = text
	a.Spec.Communities = []string{text}
	record(t, text, v)
	record(t, text, c)
	record(t, text, a)
}

func TestAdvertiseBGPRules(t *testing.T) {
	many := make([]string, 64)
	for i := range many {
		many[i] = "1:" + itoa(uint16(i))
	}
	for name, tt := range map[string]struct {
		change func(*BGPAdvertise)
		want   string
	}{
		"peer":      {func(a *BGPAdvertise) { a.Peers = []string{"tor1", "Tor 2", "tor1"} }, `spec.advertise.bgp.peers[1]: "Tor 2" ` + ruleSubdomain + "\n" + `spec.advertise.bgp.peers[2]: "tor1" is listed twice`},
		"community": {func(a *BGPAdvertise) { a.Communities = []string{"a", "1:x", "a"} }, `spec.advertise.bgp.communities[1]: "1:x" ` + errCommunityValue.Error() + "\n" + `spec.advertise.bgp.communities[2]: "a" is listed twice`},
		"shutdown":  {func(a *BGPAdvertise) { a.Communities = []string{"graceful-shutdown"} }, `spec.advertise.bgp.communities[0]: "graceful-shutdown" is GRACEFUL_SHUTDOWN, which lbd sends by itself in a drain`},
		"large":     {func(a *BGPAdvertise) { a.LargeCommunities = []string{"large:1:2:3"} }, `spec.advertise.bgp.largeCommunities[0]: "large:1:2:3" must be a:b:c, each from 0 to 4294967295`},
		"reserved": {func(a *BGPAdvertise) {
			a.Communities, a.LargeCommunities = []string{"large:4294967295:1:0"}, []string{"4294967295:1:0"}
		},
			`spec.advertise.bgp.communities[0]: "large:4294967295:1:0" begins with 4294967295, which is reserved (RFC 8092 section 5): lbd marks its own paths with it` + "\n" +
				`spec.advertise.bgp.largeCommunities[0]: "4294967295:1:0" begins with 4294967295, which is reserved (RFC 8092 section 5): lbd marks its own paths with it`},
		"many":        {func(a *BGPAdvertise) { a.Communities = many }, `spec.advertise.bgp.communities: has 64 entries; at most 63 are allowed`},
		"localPref":   {func(a *BGPAdvertise) { a.LocalPref = new(uint32) }, `spec.advertise.bgp.localPref: 0 must be from 1 to 4294967295`},
		"prepend":     {func(a *BGPAdvertise) { a.ASPathPrepend = 11 }, `spec.advertise.bgp.asPathPrepend: 11 must be from 0 to 10`},
		"good: empty": {func(*BGPAdvertise) {}, ""},
		"good: bounds": {func(a *BGPAdvertise) {
			a.LocalPref, a.MED, a.ASPathPrepend, a.Communities = new(uint32(1)), new(uint32), 10, many[:63]
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := validVIP()
			v.Spec.Advertise = &Advertise{BGP: &BGPAdvertise{}}
			v.Default()
			if v.Spec.Advertise.L2 != nil {
				t.Error("l2 comes by itself")
			}
			tt.change(v.Spec.Advertise.BGP)
			record(t, "", v)
			same(t, v.Validate(), tt.want)
		})
	}
}

func TestNodeBGPRules(t *testing.T) {
	for name, tt := range map[string]struct {
		bgp  BGPSpec
		want string
	}{
		"listen": {BGPSpec{ListenPort: 179, ListenAddresses: []string{"eth0", "fe80::1", "224.0.0.1", "::ffff:10.0.0.1", "10.0.0.1", "10.0.0.1"}},
			`bgp.listenAddresses[0]: "eth0" is not an IP address
bgp.listenAddresses[1]: "fe80::1" is an IPv6 link-local address; listen on :: for peers on the link
bgp.listenAddresses[2]: "224.0.0.1" is not the address of one node
bgp.listenAddresses[3]: "::ffff:10.0.0.1" is an IPv4 address in IPv6 form; write 10.0.0.1
bgp.listenAddresses[5]: "10.0.0.1" is listed twice`},
		"port":      {BGPSpec{ListenPort: 65536}, `bgp.listenPort: 65536 must be from 1 to 65535`},
		"router ID": {BGPSpec{ListenPort: 179, RouterID: "1"}, `bgp.routerID: "1" must be four bytes in dotted form, such as 10.0.0.11, and not 0.0.0.0`},
		"good":      {BGPSpec{ListenPort: 1790, ListenAddresses: []string{"0.0.0.0", "::"}, RouterID: "192.0.2.1"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := validNode()
			c.BGP = tt.bgp
			same(t, c.Validate(), tt.want)
		})
	}
}
