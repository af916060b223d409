// Package rivals lets several programs want the same locks of a real store while faults strike its
// servers and its holders. It judges what they were granted, and reports cells of the matrix.
//
// The module of a store has one test for each kind of server:
//
//	func TestCampaign(t *testing.T) {
//		rivals.TwoAtOnce(t)
//		server := pgtest.Start(t)
//		rivals.Campaign{
//			Where: "PostgreSQL", Module: "backends/pgxstore", Open: open,
//			Addr: func(via func(server string) string) string { return dsn(via(server.Addr())) },
//			TTL:  time.Second,
//			Faults: []rivals.Fault{
//				{Name: "servers killed", Strike: func(*rivals.Crew) { server.Kill(); server.Restart() }},
//				rivals.HoldersCutOff,
//			},
//		}.Run(t)
//	}
//
// open is a [strategies.Open]. Each rival calls it once, so each has a client of its own. Through
// via, each rival has a proxy of its own to each server.
//
// With Processes, each rival is a process. Then [HoldersKilled] and [HoldersStopped] can strike, and
// the module has the code of the processes:
//
//	func TestProcess(t *testing.T) {
//		if rivals.Process(t, open) {
//			return
//		}
//	}
//
// With Violated, the campaign must find a violation of each strategy, and strikes until it has.
//
// A violation is certain: a hold counts from when its holder learned of the grant until the end of
// its lease or until its release was sent, whichever came first. All processes run on one host and
// so have one clock. A machine that is too busy makes fewer grants, and no violations.
package rivals
