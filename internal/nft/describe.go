package nft

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// mostElements bounds how many elements of a set Describe lists.
const mostElements = 200

// Describe writes every table with its chains, for people, and of the tables whose name begins
// with own the rules and sets, too: what `nft list ruleset` says, in the terms of the kernel,
// on hosts that need not have nft.
func (s *Session) Describe(w io.Writer, own string) error {
	return s.Do(func(c *nftables.Conn) error {
		tables, err := c.ListTables()
		if err != nil {
			return fmt.Errorf("list tables: %w", err)
		}
		chains, err := c.ListChains()
		if err != nil {
			return fmt.Errorf("list chains: %w", err)
		}
		slices.SortStableFunc(tables, func(a, b *nftables.Table) int {
			return cmp.Or(cmp.Compare(a.Family, b.Family), strings.Compare(a.Name, b.Name))
		})
		if len(tables) == 0 {
			fmt.Fprintln(w, "no table")
		}
		for _, t := range tables {
			fmt.Fprintf(w, "table %s %s\n", familyName(t.Family), t.Name)
			whole := strings.HasPrefix(t.Name, own)
			if whole {
				if err := describeSets(w, c, t); err != nil {
					return err
				}
			}
			for _, chain := range chains {
				if chain.Table.Family != t.Family || chain.Table.Name != t.Name {
					continue
				}
				fmt.Fprintf(w, "  chain %s%s\n", chain.Name, hook(chain))
				if !whole {
					continue
				}
				if err := describeRules(w, c, t, chain); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// familyName is the word of nft for any family.
func familyName(f nftables.TableFamily) string {
	words := map[nftables.TableFamily]string{nftables.TableFamilyINet: "inet", nftables.TableFamilyBridge: "bridge", nftables.TableFamilyNetdev: "netdev"}
	return cmp.Or(families[f], words[f], fmt.Sprint(int(f)))
}

// hook says where a base chain is; nothing of another.
func hook(c *nftables.Chain) string {
	if c.Hooknum == nil {
		return ""
	}
	text := fmt.Sprintf(": type %s hook %d", c.Type, *c.Hooknum)
	if c.Priority != nil {
		text += fmt.Sprintf(" priority %d", *c.Priority)
	}
	if c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop {
		text += " policy drop"
	}
	return text
}

func describeRules(w io.Writer, c *nftables.Conn, t *nftables.Table, chain *nftables.Chain) error {
	rules, err := c.GetRules(t, chain)
	if err != nil {
		return fmt.Errorf("list rules of chain %s: %w", chain.Name, err)
	}
	for _, r := range rules {
		words := make([]string, len(r.Exprs))
		for i, e := range r.Exprs {
			words[i] = describeExpression(e)
		}
		fmt.Fprintf(w, "    rule %d: %s\n", r.Handle, strings.Join(words, "; "))
	}
	return nil
}

// describeExpression is an expression with its fields by name.
func describeExpression(e expr.Any) string {
	switch x := e.(type) {
	case *expr.Cmp:
		return fmt.Sprintf("cmp %d %x", x.Op, x.Data)
	case *expr.Immediate:
		return fmt.Sprintf("immediate %x", x.Data)
	case *expr.Bitwise:
		return fmt.Sprintf("bitwise & %x ^ %x", x.Mask, x.Xor)
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", e), "*expr.") + strings.TrimPrefix(fmt.Sprintf("%+v", e), "&")
}

func describeSets(w io.Writer, c *nftables.Conn, t *nftables.Table) error {
	sets, err := c.GetSets(t)
	if err != nil {
		return fmt.Errorf("list sets of table %s: %w", t.Name, err)
	}
	for _, set := range sets {
		elements, err := c.GetSetElements(set)
		if err != nil {
			return fmt.Errorf("list elements of set %s: %w", set.Name, err)
		}
		fmt.Fprintf(w, "  set %s: %d elements\n", set.Name, len(elements))
		for _, e := range elements[:min(len(elements), mostElements)] {
			line := fmt.Sprintf("    %x", e.Key)
			if len(e.Val) > 0 {
				line += fmt.Sprintf(" -> %x", e.Val)
			}
			if e.VerdictData != nil {
				line += fmt.Sprintf(" -> verdict %d %s", e.VerdictData.Kind, e.VerdictData.Chain)
			}
			if e.Expires > 0 {
				line += " expires in " + e.Expires.String()
			}
			fmt.Fprintln(w, line)
		}
		if more := len(elements) - mostElements; more > 0 {
			fmt.Fprintf(w, "    and %d more\n", more)
		}
	}
	return nil
}
