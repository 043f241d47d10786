package serve

import (
	"slices"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/explain"
	"github.com/namegate/namegate/policy"
)

// grants answers with the open grants.
func (r *request) grants() error {
	node, err := r.node()
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
	snap := r.Snapshot
	if node != nil {
		pods = append(pods, node.PodRef)
	} else if name != "" {
		p, err := r.local(namespace, name)
		if err != nil {
			return err
		}
		pods = append(pods, p.PodRef)
	} else if snap != nil {
		for _, v := range snap.Views {
			if v.Node != nil && !r.seesNodes() {
				continue
			}
			if namespace == "" || v.Pod.Namespace == namespace {
				pods = append(pods, v.Pod.PodRef)
			}
		}
	}
	return r.answerRows("grants", func(yield func(any) bool) {
		for _, p := range pods {
			for _, o := range r.open(p) {
				row := r.grantRow(o)
				row.By = explain.By(row.By, snap.ViewOf(p), r.seesCluster)
				if !yield(row) {
					return
				}
			}
		}
	})
}

// open returns a pod's grants that have not ended.
func (r *request) open(p policy.PodRef) []policy.GrantInfo {
	return slices.DeleteFunc(r.Live.Grants(p), func(o policy.GrantInfo) bool { return !o.Until.After(r.handler.now()) })
}

func (r *request) grantRow(o policy.GrantInfo) console.GrantRow {
	return console.GrantRow{
		Node: r.Node, Namespace: o.Pod.Namespace, Pod: o.Pod.Name, UID: o.Pod.UID,
		Name: o.Name.String(), Address: o.Addr.String(), Ports: string(o.Ports), Until: o.Until.UTC(), Held: o.Held.UTC(), By: o.By, ServerName: explain.ServerNameOf(o.Rule.ServerName()),
	}
}
