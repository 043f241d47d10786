package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/namegate/namegate/console"
	"github.com/namegate/namegate/console/check"
	"github.com/namegate/namegate/console/convert"
)

func convertCommand() *cobra.Command {
	var deep bool
	var r convert.Result
	cmd := &cobra.Command{
		Use:   "convert PATH...",
		Short: "Convert policies of other systems",
		Long: `Reads manifests from files, folders and the standard input (-), and writes policies for
Namegate. What is not taken over as it is, is a line on standard error. Policies for nodes become
NodeNetworkPolicies; those of Calico need the HostEndpoints in any of the files.

  networking.gke.io/v1alpha1, v1alpha2, v1alpha3  FQDNNetworkPolicy
  cilium.io/v2                                    CiliumNetworkPolicy, CiliumClusterwideNetworkPolicy
  projectcalico.org/v3                            NetworkPolicy, GlobalNetworkPolicy, HostEndpoint
  crd.antrea.io/v1beta1, v1alpha1                 NetworkPolicy, ClusterNetworkPolicy
  networking.k8s.aws/v1alpha1                     ApplicationNetworkPolicy, ClusterNetworkPolicy
  k8s.ovn.org/v1                                  EgressFirewall
  networking.istio.io/v1, v1beta1, v1alpha3       ServiceEntry

  note      is to be known beside the policies
  changed   is written differently, with the same meaning
  dropped   is left out, and allowed nothing that needs a rule
  narrower  allows less
  wider     allows more (exit code 1)
  failed    is not converted, or invalid (exit code 1)`,
		Example: `  namegate convert gke/ > policies.yaml
  kubectl get fqdnnetworkpolicies.networking.gke.io -A -o yaml | namegate convert -
  kubectl get ciliumnetworkpolicies -A -o yaml | namegate convert - > policies.yaml
  kubectl get globalnetworkpolicies.projectcalico.org,hostendpoints.projectcalico.org -o yaml | namegate convert -`,
		RunE: func(cmd *cobra.Command, paths []string) error {
			if len(paths) == 0 {
				return &console.Misused{Err: errors.New("nothing to convert; write the path of a manifest, of a folder, or - for the standard input")}
			}
			if err := check.Files(paths, interruptible(ctxOf(cmd), cmd.InOrStdin()), deep, r.Add); err != nil {
				return err
			}
			r.Convert()
			for _, n := range r.Notes {
				fmt.Fprintln(cmd.ErrOrStderr(), console.OneLine(n.String()))
			}
			if _, err := cmd.OutOrStdout().Write(r.YAML); err != nil {
				return fmt.Errorf("write policies: %w", err)
			}
			if !r.Certain() || r.Policies == 0 {
				return &console.Answered{Code: console.ExitNo}
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&r.Namespace, "namespace", "n", "", "namespace of objects that name none (default: they stay without one)")
	cmd.Flags().StringVar(&r.ClusterDomain, "cluster-domain", "cluster.local", "what names of the cluster end in")
	cmd.Flags().BoolVarP(&deep, "recursive", "R", false, "read the folders in folders too")
	return cmd
}
