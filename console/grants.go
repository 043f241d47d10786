package console

import (
	"cmp"
	"slices"
	"time"

	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/policy"
)

// GrantRow is one grant that is open.
type GrantRow struct {
	Node      string    `json:"node"`
	Namespace string    `json:"namespace"`
	Pod       string    `json:"pod"`
	UID       string    `json:"uid,omitempty"`
	Name      string    `json:"name"`
	Address   string    `json:"address"`
	Ports     string    `json:"ports"`
	Until     time.Time `json:"until"`
	// Held is when the last answer held the address, where only its use keeps it open since.
	Held time.Time `json:"held,omitzero"`
	// By are the matches that opened it, as "namespace/policy pattern"; "" where
	// that is not known any more. Those of cluster policies that the caller may not read have
	// no name.
	By string `json:"by,omitempty"`
}

// GrantRows is the answer to GrantsPath.
type GrantRows struct {
	Grants []GrantRow `json:"grants"`
}

// grants answers with the open grants.
func (c *console) grants(r *request) error {
	node, err := c.node(r)
	if err != nil {
		return err
	}
	var namespace, name string
	if node == nil {
		if namespace, name, err = r.scope(); err != nil {
			return err
		}
	}
	var pods []policy.PodRef
	snap := c.source.Snapshot()
	if node != nil {
		pods = append(pods, node.PodRef)
	} else if name != "" {
		p, err := c.local(namespace, name)
		if err != nil {
			return err
		}
		pods = append(pods, p.PodRef)
	} else if snap != nil {
		for _, v := range snap.Views {
			if v.Node != nil && !r.seesCluster(false) {
				continue
			}
			if namespace == "" || v.Pod.Namespace == namespace {
				pods = append(pods, v.Pod.PodRef)
			}
		}
	}
	return r.writeRows("grants", func(yield func(any) bool) {
		for _, p := range pods {
			for _, o := range c.open(p) {
				row := c.grantRow(o)
				row.By = explain.By(row.By, snap.ViewOf(p), r.seesCluster)
				if !yield(row) {
					return
				}
			}
		}
	})
}

// open returns a pod's grants that have not ended.
func (c *console) open(p policy.PodRef) []policy.GrantInfo {
	return slices.DeleteFunc(c.source.Grants(p), func(o policy.GrantInfo) bool { return !o.Until.After(c.now()) })
}

func (c *console) grantRow(o policy.GrantInfo) GrantRow {
	return GrantRow{
		Node: c.source.Node(), Namespace: o.Pod.Namespace, Pod: o.Pod.Name, UID: o.Pod.UID,
		Name: o.Name.String(), Address: o.Addr.String(), Ports: string(o.Ports), Until: o.Until.UTC(), Held: o.Held.UTC(), By: o.By,
	}
}

// CompareGrants orders grants as they are printed.
func CompareGrants(a, b GrantRow) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.Address, b.Address), cmp.Compare(a.Ports, b.Ports), cmp.Compare(a.Node, b.Node))
}

// ComparePods orders pods as they are printed.
func ComparePods(a, b PodRow) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Node, b.Node), cmp.Compare(a.UID, b.UID))
}
