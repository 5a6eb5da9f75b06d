// A tree of switches as a SimGrid platform, read from the file that TREE names: for each
// node its name, its parent's number (-1: the root, first), its kind (0: a switch of
// switches, 1: a host, 2: a switch of hosts), and the bytes/s and seconds of its link to
// the parent. Parents come before children.

#include <cstdlib>
#include <fstream>
#include <simgrid/s4u.hpp>
#include <string>
#include <vector>

namespace sg = simgrid::s4u;

struct Switch {
  sg::NetZone* zone;
  simgrid::kernel::routing::NetPoint* router;
};

extern "C" void load_platform(const sg::Engine& e);

static simgrid::kernel::routing::NetPoint* add_router(sg::NetZone* zone) {
  auto* router = zone->create_router(zone->get_name() + "-router");
  zone->add_route(router, nullptr, nullptr, nullptr, std::vector<sg::LinkInRoute>{});
  return router;
}

// SimGrid finds ways only between equally deep zones: a switch of switches has its
// router in a zone beside these.
static Switch add_switch(const std::string& name, bool of_hosts) {
  auto* zone = sg::create_star_zone(name);
  if (of_hosts)
    return {zone, add_router(zone)};
  auto* exit = sg::create_star_zone(name + "-exit");
  exit->set_parent(zone);
  auto* router = add_router(exit);
  zone->add_route(exit->get_netpoint(), nullptr, router, nullptr, std::vector<sg::LinkInRoute>{});
  exit->seal();
  return {zone, router};
}

void load_platform(const sg::Engine&) {
  std::ifstream file(std::getenv("TREE"));
  std::vector<Switch> nodes;
  std::string name;
  int parent, kind;
  double rate, latency;
  while (file >> name >> parent >> kind >> rate >> latency) {
    if (parent < 0) {
      nodes.push_back(add_switch(name, false));
      continue;
    }
    auto* above = nodes.at(parent).zone;
    auto* link = above->create_split_duplex_link(name + "-link", rate)->set_latency(latency);
    sg::LinkInRoute up(link, sg::LinkInRoute::Direction::UP);
    if (kind == 1) {
      auto* host = above->create_host(name, 1e9);
      above->add_route(host->get_netpoint(), nullptr, nullptr, nullptr, {up});
      nodes.push_back({});
    } else {
      auto below = add_switch(name, kind == 2);
      below.zone->set_parent(above);
      above->add_route(below.zone->get_netpoint(), nullptr, below.router, nullptr, {up});
      nodes.push_back(below);
    }
  }
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node)
    if (node->zone)
      node->zone->seal();
}
