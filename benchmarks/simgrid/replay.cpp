// Replay messages in SimGrid, each as soon as those it waits for have arrived.
//
// Reads from stdin: the number of links, then bytes/s and seconds of each; the number
// of messages, then of each its hosts, bytes, links (their number first) and the
// earlier messages it waits for (their number first). Prints the seconds of it all.

#include <cstdio>
#include <iostream>
#include <map>
#include <simgrid/s4u.hpp>
#include <string>
#include <vector>

namespace sg = simgrid::s4u;

static std::vector<size_t> read_list() {
  size_t count;
  std::cin >> count;
  std::vector<size_t> values(count);
  for (auto& value : values)
    std::cin >> value;
  return values;
}

int main(int argc, char** argv) {
  sg::Engine engine(&argc, argv);
  auto* zone = sg::create_full_zone("zone");
  std::vector<sg::Link*> links;
  std::map<size_t, sg::Host*> hosts;
  std::map<std::pair<size_t, size_t>, bool> routed;
  std::vector<sg::CommPtr> comms;
  std::vector<std::vector<size_t>> waits;

  size_t count;
  std::cin >> count;
  for (size_t i = 0; i < count; i++) {
    double rate, latency;
    std::cin >> rate >> latency;
    links.push_back(zone->create_link("link-" + std::to_string(i), rate)->set_latency(latency)->seal());
  }
  auto host = [&](size_t number) {
    auto& found = hosts[number];
    if (!found)
      found = zone->create_host("host-" + std::to_string(number), 1e9);
    return found;
  };
  std::cin >> count;
  for (size_t i = 0; i < count; i++) {
    size_t src, dst;
    double bytes;
    std::cin >> src >> dst >> bytes;
    auto *from = host(src), *to = host(dst);
    std::vector<sg::LinkInRoute> path;
    for (auto number : read_list())
      path.emplace_back(links[number]);
    waits.push_back(read_list());
    if (!std::exchange(routed[{src, dst}], true))
      zone->add_route(from->get_netpoint(), to->get_netpoint(), nullptr, nullptr, path, false);
    comms.push_back(sg::Comm::sendto_init(from, to)->set_payload_size(static_cast<uint64_t>(bytes + 0.5)));
  }
  if (!std::cin) {
    std::cerr << "simgrid_replay: the input ends early\n";
    return 2;
  }
  zone->seal();
  for (size_t i = 0; i < count; i++)
    for (auto before : waits[i])
      comms[before]->add_successor(comms[i]);
  for (auto& comm : comms)
    comm->vetoable_start();
  engine.run();
  std::printf("%.9e\n", sg::Engine::get_clock());
  return 0;
}
