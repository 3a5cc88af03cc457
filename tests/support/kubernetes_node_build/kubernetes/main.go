// Command kubernetes is the programs of a Kubernetes node in one, as they share most of their code: the first argument
// chooses which.
package main

import (
	"context"
	"fmt"
	"os"

	router "github.com/cloudnativelabs/kube-router/v2/pkg/cmd"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var commands = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-proxy":              proxy.NewProxyCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kube-router":             routerCommand,
	"kubectl":                 kubectl.NewDefaultKubectlCommand,
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

func routerCommand() *cobra.Command {
	settings := options.NewKubeRouterConfig()
	command := &cobra.Command{RunE: func(*cobra.Command, []string) error {
		made, err := router.NewKubeRouterDefault(settings)
		if err != nil {
			return err
		}
		return made.Run()
	}}
	settings.AddFlags(command.Flags())
	return command
}

func main() {
	if len(os.Args) > 1 {
		os.Args = os.Args[1:]
		if os.Args[0] == "coredns" {
			coremain.Run()
			return
		}
		if command, ok := commands[os.Args[0]]; ok {
			os.Exit(cli.Run(command()))
		}
	}
	fmt.Fprintln(os.Stderr, "usage: kubernetes coredns|kube-apiserver|kube-controller-manager|kube-proxy|kube-router|kube-scheduler|kubectl|kubelet ...")
	os.Exit(2)
}
